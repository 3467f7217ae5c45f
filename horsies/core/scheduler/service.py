"""The scheduler: at each check it reads the database's clock, the changes and the due runs, and sends.

`horsies scheduler` runs it in a separate process, and a worker runs it beside its other services. Any number of
schedulers may run at the same time. `timetable.py` knows what is due, `fire.py` makes one transaction.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from time import monotonic

from horsies.core.db import AWAY, Connection, Connections, by_halves, describe, is_away
from horsies.core.models.schedule import ScheduleConfig
from horsies.core.scheduler import fire, payloads, plan, sync
from horsies.core.scheduler.timetable import DueQueue, Entry, Timetable
from horsies.core.store import schedules as store

log = logging.getLogger("horsies.scheduler")

BATCH = 100  # schedules in one transaction
MOST_TASKS = 1_000  # of one transaction

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
        self._timetable = Timetable()
        self._sync = sync.ScheduleSync(self._timetable, config.schedules)
        self._preparation = payloads.Preparation(preparer, self._is_ours, limits)
        self._due = DueQueue()
        self._fired: dict[str, int] = {}  # how many slots of each schedule this check has fired
        self._next_check = 0.0
        # The database's time, and our monotonic time when it was read.
        self._clock = (datetime.fromtimestamp(0, UTC), 0.0)

    async def step(self) -> float:
        """One check, or the runs that are due between two checks; return the seconds until the next step. It raises
        only failures of the database."""
        begun = monotonic()
        try:
            if monotonic() >= self._next_check:
                await self.check()
            else:
                await self._fire_due(self._now())
        except AWAY:
            self._next_check = 0.0
            raise
        except Exception:
            log.exception("a check failed; the next one follows in %g s", self.interval_s)
            return self.interval_s
        if self._due:
            return SHORTEST_PAUSE_S
        took = monotonic() - begun
        return max(SHORTEST_PAUSE_S, min(SHARE * took, LONGEST_SHARE_S), self._until_next())

    async def check(self) -> None:
        """Check everything: the time, the run-time schedules, the states, and the due runs."""
        self._next_check = monotonic() + self.interval_s
        self._fired.clear()
        self._timetable.begin_check()
        async with self._connections.connection() as conn:
            look = await store.look(conn)
            now = look.now + self._ahead
            self._clock = (now, monotonic())
            await self._sync.refresh(conn, look.version)
            while self._timetable.has_unread:
                await self._read_states(conn)
            await self._read_states(conn)
        await self._fire_due(now)
        self.last_check = monotonic()

    def close(self) -> None:
        """End everything that is in progress."""
        self._preparation.close()

    async def _read_states(self, conn: Connection) -> None:
        page = self._timetable.next_page()
        if page:
            self._timetable.note(page, await store.states(conn, page))

    def _until_next(self) -> float:
        return min(self._next_check - monotonic(), self._preparation.pause_s, self._until_due())

    def _until_due(self) -> float:
        following = self._timetable.next_look
        return inf if following is None else (following - self._now()).total_seconds() + EARLY_S

    def _now(self) -> datetime:
        """Approximately the database's time: good enough to decide when to query it."""
        said, at = self._clock
        return said + timedelta(seconds=monotonic() - at)

    async def _fire_due(self, now: datetime) -> None:
        """Send for a short while; the next step continues with the rest."""
        end = monotonic() + self._slice_s
        batch: list[Entry] = []
        try:
            self._take(now)
            while True:
                batch = [entry for entry in self._due.next_batch(BATCH) if self._is_ours(entry)]
                if batch:
                    await self._fire(batch)
                elif not self._due and not await self._is_prepared(end):
                    return
                if monotonic() >= end:
                    return
                self._take(self._now())
        except BaseException:
            # This includes schedules of the batch that were fired: the next check reads their states.
            for entry in (*batch, *self._due.clear()):
                if entry.at is None:
                    self._timetable.later(entry)
            raise

    async def _is_prepared(self, end: float) -> bool:
        """Whether the payload is ready; usually it takes a moment. Other due schedules do not wait for it."""
        return await self._preparation.wait(min(end - monotonic(), self._until_due()))

    def _is_ours(self, entry: Entry) -> bool:
        """Whether nobody has removed or replaced it in the meantime."""
        return self._timetable.entries.get(entry.name) is entry

    def _take(self, now: datetime) -> None:
        """Collect the schedules that have become due, and request missing payloads."""
        self._due.add(self._preparation.take())
        due = self._timetable.take_due(now)
        self._due.add(entry for entry in due if entry.payload is not None or not entry.is_begun)
        self._preparation.ask(entry for entry in due if entry.payload is None and entry.is_begun)

    async def _fire(self, batch: Sequence[Entry]) -> None:
        unprepared: list[Entry] = []
        # A schedule that cannot be fired must not keep the others back (S-39).
        for entries, done in await by_halves(batch, self._fired_at_once, is_refusal=_is_of_one, give_up=self._give_up):
            fire.report(entries, done)
            for entry in entries:
                if entry.name in done.unprepared:
                    entry.is_begun = True
                    unprepared.append(entry)
                elif self._goes_on(entry, done):
                    self._due.add_again(entry)
        self._preparation.ask(unprepared)

    async def _fired_at_once(self, batch: Sequence[Entry]) -> tuple[Sequence[Entry], fire.FireResult]:
        """All of them in one transaction."""

        def slots_left(entry: Entry) -> int:
            cap = entry.schedule.max_catch_up_runs - self._fired.get(entry.name, 0)
            return max(1, min(MOST_TASKS // len(batch), cap))

        async with self._connections.connection() as conn, conn.transaction():
            return batch, await fire.fire(conn, batch, slots_left, self._ahead)

    def _give_up(self, entry: Entry, problem: Exception) -> None:
        fire.complain(entry, describe(problem))
        self._timetable.later(entry)

    def _goes_on(self, entry: Entry, done: fire.FireResult) -> bool:
        """Record the outcome; True if there is more to do at once."""
        name = entry.name
        if name not in done.steps:
            if name in done.stale:
                self._sync.reread_soon()
            else:
                fire.note_missed(entry)
            self._timetable.later(entry)
            return False
        step = done.steps[name]
        entry.misses = 0
        entry.is_begun = True
        if isinstance(step, plan.Fire):
            entry.failures = 0
            self._fired[name] = self._fired.get(name, 0) + len(step.slots)
        if done.now is None or step.next_run_at is None or step.next_run_at > done.now:
            self._timetable.arm(entry, step.next_run_at)
        elif self._fired.get(name, 0) < entry.schedule.max_catch_up_runs:
            return True
        else:
            self._timetable.later(entry)
        return False


def _is_of_one(problem: Exception) -> bool:
    return not is_away(problem)
