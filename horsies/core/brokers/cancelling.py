"""Ending tasks for certain. One cancellation can be lost: `asyncio.wait_for`, which psycopg waits with, forgets it
before Python 3.12 when what it waited for comes in the same moment, and a statement that is hit may answer with an
error of its own, which whoever tries again takes for a reason to go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_S = 0.25


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel these, again and again, until they have ended. What they end with is nobody's business any more."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()  # else it would be reported as never retrieved
