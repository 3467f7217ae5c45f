"""Tries again by itself what failed for a reason that passes (T-51).
Each try is the same as the one before, under the same id, so a try that had succeeded unseen is recognised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from horsies.core.types.result import Err, Ok, Result
from horsies.core.types.twins import pause as wait

# The pauses of `resend_on_transient_err` in seconds: doubling, no jitter.
RESEND_PAUSES = (0.2, 0.4, 0.8)


class Retryable(Protocol):
    """An error that says whether a retry may succeed."""

    @property
    def retryable(self) -> bool: ...


T = TypeVar("T")
E = TypeVar("E", bound=Retryable)


async def tried(
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
        await wait(pause)
    return Err(error)
