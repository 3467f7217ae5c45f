"""How often pages refresh themselves, and who shares an answer (M-95): many viewers cost about as much as one.

Whoever refreshes a page within a second of somebody else gets the same answer, unless viewers were told of a change in
between: nobody might tell them again. And each answer says how long to wait
before the next refresh: so long that all viewers together spend only a small part of the time on refreshing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from time import monotonic

from starlette.responses import Response

SHARED_S = 1.0
MOST_SHARED = 64
SHORTEST_WAIT_S, LONGEST_WAIT_S = 1.0, 15.0
SHARE = 0.02  # of the time of one processor, for all viewers together
WAIT_HEADER = "X-Horsies-Wait"
REFRESH_HEADER = "X-Horsies-Refresh"


def wait_after(took_s: float, viewers: int) -> float:
    """How many seconds a page that took so long waits for its next refresh, while so many look."""
    return min(LONGEST_WAIT_S, max(SHORTEST_WAIT_S, took_s * max(1, viewers) / SHARE))


@dataclass(slots=True)
class _Shared:
    made_at: float
    answer: asyncio.Task[Response]
    loop: asyncio.AbstractEventLoop


@dataclass(slots=True)
class SharedAnswers:
    """Answers of the last second, by what they depend on."""

    clock: Callable[[], float] = monotonic
    _kept: dict[Hashable, _Shared] = field(default_factory=dict)

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Response]], *, told_at: float = 0.0) -> Response:
        """The answer that somebody got within the last second, or a new one; also if it was begun before `told_at`.
        A failure is not kept."""
        loop = asyncio.get_running_loop()
        shared = self._kept.get(key)
        if shared is None or shared.loop is not loop or shared.made_at <= max(told_at, self.clock() - SHARED_S):
            shared = _Shared(self.clock(), loop.create_task(_made(make)), loop)
            self._kept.pop(key, None)
            self._kept[key] = shared
            while len(self._kept) > MOST_SHARED:
                self._kept.pop(next(iter(self._kept)))
        try:
            found = await asyncio.shield(shared.answer)
        except BaseException:
            if shared.answer.done() and self._kept.get(key) is shared:
                del self._kept[key]
            raise
        return _copy(found)


async def _made(make: Callable[[], Awaitable[Response]]) -> Response:
    return await make()


def _copy(answer: Response) -> Response:
    """Middleware may add headers to what it sends."""
    made = Response(answer.body, answer.status_code)
    made.raw_headers = list(answer.raw_headers)
    return made
