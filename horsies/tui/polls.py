"""Questions to the database that are asked again and again, in the background: a key never waits for an answer.

A `Poll` keeps its last answer and how old that is. If the database is away, the answer stays and the problem is said;
the question is asked again until there is an answer. Watching must not become a load: a poll pauses at least ten times
as long as its answer took, and only what is on the screen is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Generic, TypeAlias, TypeVar

from horsies.core.db import describe
from horsies.core.models.monitoring.tasks import MonitoringResult
from horsies.core.types import Ok

T = TypeVar("T")
log = logging.getLogger("horsies.tui")
PATIENCE = 10  # the pause is at least so many times as long as the answer took
PATIENCE_S = 20.0  # an answer must come within this time
SLOW_S = 3.0  # after this time without an answer, that is said
RETRY_S = 1.0

Ask: TypeAlias = Callable[[], Awaitable[MonitoringResult[T]]]


class Poll(Generic[T]):
    """`ask` asks once; the answer is good for `every_s` (None: for ever)."""

    def __init__(self, ask: Ask[T], every_s: float | None) -> None:
        self.value: T | None = None
        self.problem: str | None = None
        self.failed_since: float | None = None
        self.answered_at: float | None = None
        self.asked_at: float | None = None  # while it is being asked
        self._ask = ask
        self.every_s = every_s
        self._took_s = 0.0
        self._ended_at: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether it should be asked, by the monotonic clock."""
        if self.asked_at is not None:
            return False
        if self._ended_at is None:
            return True
        if self.problem is not None:
            return now >= self._ended_at + RETRY_S
        return self.every_s is not None and now >= self._ended_at + max(self.every_s, PATIENCE * self._took_s)

    def hurry(self) -> None:
        """Let it be asked at the next occasion."""
        self._ended_at = None

    async def ask(self, clock: Callable[[], float] = monotonic) -> None:
        began = self.asked_at = clock()
        try:
            answer = await asyncio.wait_for(self._ask(), PATIENCE_S)
            problem = None if isinstance(answer, Ok) else answer.err_value.message
            if isinstance(answer, Ok):
                self.value, self.answered_at = answer.ok_value, clock()
        except TimeoutError:
            problem = f"no answer within {PATIENCE_S:g} s"
        except Exception as failed:  # a mistake in monitoring must not end the program
            log.exception("a question could not be asked")
            problem = describe(failed)
        finally:
            self.asked_at, self._ended_at = None, clock()
            self._took_s = self._ended_at - began
        self.problem = problem
        self.failed_since = None if problem is None else self.failed_since or began

    def trouble(self, now: float) -> tuple[str, float] | None:
        """Why there is no new answer, and for how many seconds."""
        if self.problem is not None and self.failed_since is not None:
            return self.problem, now - self.failed_since
        if self.asked_at is not None and now - self.asked_at >= SLOW_S:
            return "no answer", now - self.asked_at
        return None

    def age_s(self, now: float) -> float | None:
        return None if self.answered_at is None else now - self.answered_at


class Feed:
    """Asks what is wanted and due, and says when something has changed."""

    def __init__(self, wanted: Callable[[], Iterable[Poll[Any]]], changed: Callable[[], None], tick_s: float) -> None:
        self._wanted = wanted
        self._changed = changed
        self._tick_s = tick_s
        self._asking: set[asyncio.Task[None]] = set()
        self._bell = asyncio.Event()

    async def run(self) -> None:
        while True:
            self.tick()
            try:
                await asyncio.wait_for(self._bell.wait(), self._tick_s)
            except TimeoutError:
                continue
            self._bell.clear()

    def tick(self) -> None:
        """Begin to ask what is due."""
        now = monotonic()
        for poll in self._wanted():
            if poll.is_due(now):
                poll.asked_at = now  # it is not begun twice
                task = asyncio.create_task(self._ask(poll), name="horsies tui poll")
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)

    def ring(self) -> None:
        """Something else is wanted now: do not wait for the next tick."""
        self._bell.set()

    def refresh(self) -> None:
        for poll in self._wanted():
            poll.hurry()
        self.ring()

    async def close(self) -> None:
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _ask(self, poll: Poll[Any]) -> None:
        await poll.ask()
        self._changed()


class ServerClock:
    """The time of the database's clock, from the moment of its last snapshot on; until there is one, that of this
    machine."""

    def __init__(self, local: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._local = local
        self._ahead = timedelta(0)

    def now(self) -> datetime:
        return self._local() + self._ahead

    def set(self, taken_at: datetime) -> None:
        self._ahead = taken_at - self._local()
