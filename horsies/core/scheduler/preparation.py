"""Makes the payloads of schedules separately from sending: code of the app may be slow or never end, and then only its
own schedule waits. Its slot is not lost, because nothing is written before there is a payload.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from time import monotonic
from typing import NamedTuple

from horsies.core.scheduler.board import Entry
from horsies.core.scheduler.payloads import Preparer, PreparerFailed, Wanted
from horsies.core.scheduler.reports import complain
from horsies.core.types.result import Err, Ok

log = logging.getLogger("horsies.scheduler")

BATCH = 100
LONGEST_REST_S = 300.0
LOOK_AGAIN_S = 0.05


class Limits(NamedTuple):
    """How long the arguments of one schedule may take, in seconds."""

    among_others: float = 2.0
    alone: float = 10.0


USUAL = Limits()


class Preparation:
    """Schedules that are requested here are kept until `take` returns them with a payload."""

    def __init__(self, preparer: Preparer, is_wanted: Callable[[Entry], bool], limits: Limits) -> None:
        self._preparer = preparer
        self._limits = limits
        self._is_wanted = is_wanted
        self._line: deque[Entry] = deque()
        self._alone: deque[Entry] = deque()  # these take their time, or have failed
        self._resting: list[tuple[float, int, Entry]] = []
        self._numbers = itertools.count()
        self._ready: list[Entry] = []
        self._is_quick = True  # those that mostly take a moment are being made
        self._news = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    @property
    def pause_s(self) -> float:
        """The number of seconds after which there may be something to take."""
        if self._ready or self._is_busy:
            return LOOK_AGAIN_S
        return self._resting[0][0] - monotonic() if self._resting else inf

    @property
    def _is_busy(self) -> bool:
        return self._work is not None and not self._work.done()

    def ask(self, entries: Iterable[Entry]) -> None:
        """Make the payloads of these schedules; a schedule that has failed before is handled alone."""
        for entry in entries:
            (self._alone if entry.failures else self._line).append(entry)
        if (self._line or self._alone) and not self._is_busy:
            self._is_quick = bool(self._line)
            self._work = asyncio.create_task(self._make_all(), name="payloads of schedules")

    def take(self) -> list[Entry]:
        """The schedules that have a payload now. Those whose delay is over are requested again."""
        rested: list[Entry] = []
        while self._resting and self._resting[0][0] <= monotonic():
            rested.append(heapq.heappop(self._resting)[2])
        if rested:
            self.ask(rested)
        ready, self._ready = self._ready, []
        return [entry for entry in ready if self._is_wanted(entry)]

    async def wait(self, seconds: float) -> bool:
        """Wait until there is something to take, for at most this time; False if there is nothing. Schedules that are
        known to be slow are not waited for."""
        if not self._ready and self._is_busy and self._is_quick:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), seconds)
        return bool(self._ready)

    def close(self) -> None:
        """Drop everything."""
        if self._work is not None:
            self._work.cancel()

    async def _make_all(self) -> None:
        try:
            while self._line or self._alone:
                is_alone = not self._line
                self._is_quick = not is_alone
                if is_alone:
                    self._news.set()
                count = min(BATCH, len(self._line))
                batch = [self._alone.popleft()] if is_alone else [self._line.popleft() for _ in range(count)]
                wanted = [entry for entry in batch if self._is_wanted(entry)]
                if wanted:
                    await self._make(wanted, is_alone)
        finally:
            self._news.set()

    async def _make(self, entries: list[Entry], is_alone: bool) -> None:
        wanted = [Wanted(entry.name, entry.definition) for entry in entries]
        limit_s = self._limits.alone if is_alone else self._limits.among_others
        try:
            answers = await self._preparer.prepare(wanted, limit_s)
        except PreparerFailed as problem:
            if problem.is_about_one and not is_alone:
                self._set_apart(entries, problem.culprit)
                return
            answers = [Err(str(problem)) for _ in entries]
        except Exception as problem:
            log.exception("the arguments of schedules cannot be encoded")
            answers = [Err(type(problem).__name__) for _ in entries]
        for entry, answer in zip(entries, answers, strict=True):
            if isinstance(answer, Ok):
                entry.payload = answer.value
                entry.failures = 0
                self._ready.append(entry)
            else:
                self._rest(entry, answer.error)
        if self._ready:
            self._news.set()

    def _set_apart(self, entries: list[Entry], culprit: int | None) -> None:
        if culprit is None:
            self._alone.extend(entries)
        else:
            self._alone.append(entries.pop(culprit))
            self._line.extendleft(reversed(entries))

    def _rest(self, entry: Entry, why: str) -> None:
        complain(entry, why)
        seconds = min(2.0 ** min(entry.failures - 1, 10), LONGEST_REST_S)
        heapq.heappush(self._resting, (monotonic() + seconds, next(self._numbers), entry))
