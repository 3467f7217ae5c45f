"""Keeps the timetable up to date with the schedules of the code and those that were added at run time (D-36).

Rows of run-time schedules can be written by hand. A mistake in a row is HRS-205 and concerns only that row.
"""

import logging
from collections.abc import Iterable

from horsies.core.db import Connection, describe
from horsies.core.errors import ConfigurationError, ErrorCode, HorsiesError, MultipleValidationErrors
from horsies.core.models.schedule import TaskSchedule
from horsies.core.scheduler.fire import LoopBreak
from horsies.core.scheduler.timetable import Entry, Timetable
from horsies.core.store import schedules
from horsies.core.store import schedules as store

log = logging.getLogger("horsies.scheduler")

PAGE = 1_000
AT_ONCE = 200


class ScheduleSync:
    """`version` is that of the run-time schedules on the timetable."""

    def __init__(self, timetable: Timetable, of_code: Iterable[TaskSchedule]) -> None:
        self._timetable = timetable
        self._of_code = {schedule.name: schedule for schedule in of_code}
        self._known: dict[str, schedules.Mark] = {}
        self._version: int | None = None
        self._hidden: set[str] = set()
        self._is_first = True

    async def refresh(self, conn: Connection, version: int) -> None:
        """Read the run-time schedules that have changed, if any."""
        if self._is_first:
            await self._take_in_code()
        if version == self._version:
            return
        found = await self._marks(conn)
        for name in [name for name in self._known if name not in found]:
            del self._known[name]
            self._drop(name)
        changed = [name for name, mark in found.items() if self._known.get(name) != mark]
        loop_break = LoopBreak()
        for start in range(0, len(changed), AT_ONCE):
            for stored in await store.definitions(conn, changed[start : start + AT_ONCE]):
                self._take_in(stored)
                await loop_break.take()
        self._version = version

    def reread_soon(self) -> None:
        """Something was seen that is not on the timetable: read again at the next check."""
        self._version = None

    async def _take_in_code(self) -> None:
        self._is_first = False
        loop_break = LoopBreak()
        for schedule in self._of_code.values():
            if schedule.enabled:
                self._timetable.put(Entry(schedule))
            await loop_break.take()

    async def _marks(self, conn: Connection) -> dict[str, schedules.Mark]:
        found: dict[str, schedules.Mark] = {}
        page = await store.marks(conn, "", PAGE)
        while page:
            found |= page
            page = await store.marks(conn, next(reversed(page)), PAGE) if len(page) == PAGE else {}
        return found

    def _take_in(self, stored: schedules.StoredSchedule) -> None:
        self._known[stored.name] = schedules.Mark(stored.changed_at, stored.paused)
        if stored.name in self._of_code:
            if stored.name not in self._hidden:
                log.warning(
                    "the schedule %r in the database is ignored: the code has a schedule with the same name",
                    stored.name,
                )
            self._hidden.add(stored.name)
            return
        try:
            schedule = read(stored)
        except HorsiesError as problem:
            log.error("the schedule %r in the database cannot be used: %s", stored.name, in_one_line(problem))
            self._timetable.drop(stored.name)
            return
        if stored.paused or not schedule.enabled:
            self._timetable.drop(stored.name)
        else:
            self._timetable.put(Entry(schedule, stored.changed_at, stored.definition))

    def _drop(self, name: str) -> None:
        self._hidden.discard(name)
        if name not in self._of_code:
            self._timetable.drop(name)


def read(stored: schedules.StoredSchedule) -> TaskSchedule:
    """The schedule that a row describes; raises the mistakes in it."""
    if stored.problem is not None:
        raise unusable(stored.problem)
    return schedule_of(stored.name, stored.definition)


def schedule_of(name: str, definition: object) -> TaskSchedule:
    """The same for its definition. The name is that of the row, whatever the definition says."""
    if not isinstance(definition, dict):
        raise unusable("its definition is not an object")
    try:
        return TaskSchedule(**{**definition, "name": name})
    except HorsiesError:
        raise
    except Exception as problem:
        raise unusable(f"its definition cannot be used: {describe(problem)}") from None


def unusable(why: str) -> ConfigurationError:
    """HRS-205."""
    return ConfigurationError(why, code=ErrorCode.CONFIG_INVALID_SCHEDULE)


def in_one_line(problem: HorsiesError) -> str:
    """The mistake on one line, for a log."""
    errors = problem.errors if isinstance(problem, MultipleValidationErrors) else [problem]
    return "; ".join(describe(error) for error in errors)
