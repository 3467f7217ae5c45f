"""The scheduler: at each check it reads the database's clock, the changes and the due runs, and sends.

The table of states is the timetable: one statement (`due.sql`) returns which schedules are due and when the next one
is. What is kept here is a schedule's definition and payload, and who has to wait for the next check. `horsies
scheduler` runs this in a separate process, and a worker runs it beside its other services. Any number of schedulers may
run at the same time. `fire.py` makes one transaction.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from math import inf
from time import monotonic

from horsies.core.db import AWAY, Connection, Connections, by_halves, describe, is_away
from horsies.core.errors import HorsiesError
from horsies.core.models.schedule import ScheduleConfig
from horsies.core.scheduler import fire, payloads, plan
from horsies.core.scheduler.fire import Entry
from horsies.core.sql import texts
from horsies.core.store import schedules as store

log = logging.getLogger("horsies.scheduler")

BATCH = 100  # schedules in one transaction
MOST_TASKS = 1_000  # of one transaction
PAGE = 1_000  # schedules that one statement reads

# Schedules that are due at slightly different times share a transaction, because there is a pause between two steps:
# at least this long, and nine times as long as the last step, up to a limit.
SHORTEST_PAUSE_S = 0.02
SHARE = 9
LONGEST_SHARE_S = 0.25
EARLY_S = 0.002  # to wake a little late is better than to wake twice
SLICE_S = 0.2  # a step fires for at most this long, because a check or the shutdown may be due


class Scheduler:
    """`step` does what there is to do and returns how long to wait. `last_check` is `monotonic()` of the last
    successful check. `ahead`: act as if it were so much later, which only tests want."""

    def __init__(
        self,
        config: ScheduleConfig,
        connections: Connections,
        preparer: payloads.Preparer,
        *,
        slice_s: float = SLICE_S,
        limits: payloads.PreparationLimits = payloads.USUAL,
        ahead: timedelta = fire.NOT_AHEAD,
    ) -> None:
        self.interval_s = float(config.check_interval_seconds)
        self.last_check: float | None = None
        self._connections = connections
        self._slice_s = slice_s
        self._ahead = ahead
        # A schedule that was removed or replaced in the meantime needs no payload.
        self._preparation = payloads.Preparation(preparer, lambda entry: self._entries.get(entry.name) is entry, limits)
        self._code = {schedule.name: schedule for schedule in config.schedules}
        self._entries: dict[str, Entry] = {}
        self._listed: tuple[str, str] | None = None  # their names and hashes, as `due` takes them
        self._known: dict[str, store.Mark] = {}  # the run-time schedules, also those that cannot be used
        self._version: int | None = None
        self._next_check = 0.0
        # What the present check has done.
        self._fired: dict[str, int] = {}  # how many slots of each schedule
        self._begun: set[str] = set()
        self._behind: set[str] = set()  # these have more runs to catch up
        self._later: set[str] = set()  # these wait for the next check

    async def step(self) -> float:
        """One check, or the runs that are due between two checks; return the seconds until the next step. It raises
        only failures of the database."""
        begun = monotonic()
        try:
            if begun >= self._next_check:
                pause = await self.check()
            else:
                pause = await self._fire_due()
        except AWAY:
            self._next_check = 0.0
            raise
        except Exception:
            log.exception("a check failed; the next one follows in %g s", self.interval_s)
            return self.interval_s
        if not pause:
            return SHORTEST_PAUSE_S
        took = monotonic() - begun
        pause = min(pause, self._next_check - monotonic())
        return max(SHORTEST_PAUSE_S, min(SHARE * took, LONGEST_SHARE_S), pause)

    async def check(self) -> float:
        """Check everything: the run-time schedules and the due runs. Return the seconds until more is due."""
        self._next_check = monotonic() + self.interval_s
        for of_this_check in (self._fired, self._begun, self._behind, self._later):
            of_this_check.clear()
        if self.last_check is None:
            for schedule in self._code.values():
                if schedule.enabled:
                    self._put(Entry(schedule))
                    await asyncio.sleep(0)
        async with self._connections.connection() as conn:
            await self._refresh(conn, (await store.look(conn)).version)
        pause = await self._fire_due()
        self.last_check = monotonic()
        return pause

    def close(self) -> None:
        """End everything that is in progress."""
        self._preparation.close()

    async def _refresh(self, conn: Connection, version: int) -> None:
        """Take over the run-time schedules that have changed, if any."""
        while version != self._version:
            changes = await store.changes(conn, self._known, PAGE)
            for stored in changes:
                self._take_in(stored)
                await asyncio.sleep(0)
            if len(changes) < PAGE:
                self._version = version

    def _take_in(self, stored: store.StoredSchedule) -> None:
        name = stored.name
        if stored.mark is None:
            del self._known[name]
        else:
            self._known[name] = stored.mark
        if name in self._code:
            if stored.mark is not None:
                log.warning(
                    "the schedule %r in the database is ignored: the code has a schedule with the same name", name
                )
            return
        self._drop(name)
        if stored.mark is None:
            return
        try:
            schedule = payloads.read(stored)
        except HorsiesError as problem:
            log.error("the schedule %r in the database cannot be used: %s", name, payloads.in_one_line(problem))
            return
        if schedule.enabled and not stored.paused:
            self._put(Entry(schedule, stored.mark.changed_at, stored.definition))

    def _put(self, entry: Entry) -> None:
        self._entries[entry.name] = entry
        self._listed = None

    def _drop(self, name: str) -> None:
        if self._entries.pop(name, None) is not None:
            self._listed = None

    async def _fire_due(self) -> float:
        """Send for a short while; return the seconds until more is due, or 0 if there is more to do."""
        end = monotonic() + self._slice_s
        while True:
            due, pause = await self._due()
            for batch in _batches(due, self._behind):
                pause = min(pause, await self._fire(batch))
                if monotonic() >= end:
                    return 0.0
            if self._preparation.is_quick:  # what becomes due meanwhile does not wait for it
                await self._preparation.wait(min(end - monotonic(), pause))
                if monotonic() >= end:
                    return 0.0
            elif pause > 0:
                return pause

    async def _due(self) -> tuple[list[Entry], float]:
        """The schedules to fire now, and the seconds until the next one is due."""
        if self._listed is None:
            hashes = texts(entry.config_hash for entry in self._entries.values())
            self._listed = texts(self._entries), hashes
        self._preparation.forget_news()
        # Those that have to wait must not hide the others.
        most = PAGE + len(self._later) + len(self._behind) + len(self._preparation.pending)
        async with self._connections.connection() as conn:
            found = await store.due(conn, *self._listed, most)
        due: list[Entry] = []
        for name, at, now in found:
            if at is not None and at > now + self._ahead:
                return due, (at - now - self._ahead).total_seconds() + EARLY_S
            entry = self._entries[name]
            if at is None and name in self._begun:
                self._later.add(name)  # another process has another configuration of it (S-37)
            if name in self._later or entry in self._preparation.pending:
                continue
            if at is None or entry.payload is not None:
                due.append(entry)
            else:
                self._preparation.ask(entry)
        return due, inf if len(found) < most else 0.0

    async def _fire(self, batch: Sequence[Entry]) -> float:
        """Return the seconds until one of them is due again."""
        pause = inf
        # A schedule that cannot be fired must not keep the others back (S-39).
        for entries, done in await by_halves(
            batch, self._fired_at_once, is_refusal=lambda problem: not is_away(problem), give_up=self._give_up
        ):
            fire.report(entries, done)
            pause = min(pause, *(self._record(entry, done) for entry in entries))
        return pause

    async def _fired_at_once(self, batch: Sequence[Entry]) -> tuple[Sequence[Entry], fire.FireResult]:
        """All of them in one transaction."""

        def slots_left(entry: Entry) -> int:
            cap = entry.schedule.max_catch_up_runs - self._fired.get(entry.name, 0)
            return max(1, min(MOST_TASKS // len(batch), cap))

        async with self._connections.connection() as conn, conn.transaction():
            return batch, await fire.fire(conn, batch, slots_left, self._ahead)

    def _give_up(self, entry: Entry, problem: Exception) -> None:
        fire.complain(entry, describe(problem))
        self._later.add(entry.name)

    def _record(self, entry: Entry, done: fire.FireResult) -> float:
        """Return the seconds until it is due again; infinite if it waits for the next check."""
        name = entry.name
        if name in done.stale or name in done.left:
            if name in done.stale:
                self._version = None
            else:
                fire.note_missed(entry)
            self._later.add(name)
            return inf
        step = done.steps.get(name)
        if step is None or done.now is None:
            return 0.0  # it has no payload yet
        entry.misses = 0
        self._behind.discard(name)
        if step.next_run_at is None:
            self._drop(name)  # it will not run again
            return inf
        if isinstance(step, plan.Fire):
            entry.failures = 0
            self._fired[name] = self._fired.get(name, 0) + len(step.slots)
        elif not isinstance(step, plan.Wait):
            self._begun.add(name)
        pause = (step.next_run_at - done.now).total_seconds()
        if pause > 0:
            return pause + EARLY_S
        if self._fired.get(name, 0) < entry.schedule.max_catch_up_runs:
            self._behind.add(name)
            return 0.0
        self._later.add(name)
        return inf


def _batches(due: Iterable[Entry], behind: set[str]) -> list[Sequence[Entry]]:
    """What each transaction fires: first what has just become due, then those that catch up, so that a week of missed
    runs does not hold up the others (S-36), then each schedule that failed the last time, alone."""
    sound = sorted((entry for entry in due if not entry.failures), key=lambda entry: entry.name in behind)
    batches: list[Sequence[Entry]] = [sound[start : start + BATCH] for start in range(0, len(sound), BATCH)]
    return batches + [[entry] for entry in due if entry.failures]
