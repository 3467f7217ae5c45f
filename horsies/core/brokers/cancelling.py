"""Cancels asyncio tasks reliably. A single cancellation can be lost: before Python 3.12, `asyncio.wait_for`, which
psycopg uses, forgets it if the awaited result arrives at the same moment. Also, a cancelled statement may raise its own
error, and a retry loop may treat that error as a reason to continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_S = 0.25


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel these tasks repeatedly until they have ended, and ignore their results."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()  # else it would be reported as never retrieved
