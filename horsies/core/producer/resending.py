"""Retries operations that failed temporarily (T-51), for blocking and for async callers. Each try is identical and uses
the same id, so an earlier try that succeeded unnoticed is recognised.
"""

from __future__ import annotations

from asyncio import sleep as sleep_async
from collections.abc import Awaitable, Callable, Sequence
from time import sleep
from typing import Protocol, TypeVar

from horsies.core.types.result import Err, Ok, Result

# The pauses of `resend_on_transient_err` in seconds: doubling, no jitter.
RESEND_PAUSES = (0.2, 0.4, 0.8)


class Retryable(Protocol):
    """An error that says whether a retry may succeed."""

    @property
    def retryable(self) -> bool: ...


T = TypeVar("T")
E = TypeVar("E", bound=Retryable)


def tried(attempt: Callable[[], T], explain: Callable[[BaseException], E], pauses: Sequence[float]) -> Result[T, E]:
    """The final outcome; `explain` turns an exception into an error."""
    for pause in (*pauses, None):
        try:
            return Ok(attempt())
        except Exception as problem:
            error = explain(problem)
        if pause is None or not error.retryable:
            break
        sleep(pause)
    return Err(error)


async def tried_async(
    attempt: Callable[[], Awaitable[T]], explain: Callable[[BaseException], E], pauses: Sequence[float]
) -> Result[T, E]:
    """The final outcome; `explain` turns an exception into an error."""
    for pause in (*pauses, None):
        try:
            return Ok(await attempt())
        except Exception as problem:
            error = explain(problem)
        if pause is None or not error.retryable:
            break
        await sleep_async(pause)
    return Err(error)
