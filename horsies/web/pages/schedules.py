"""Schedules (M-91): in words, the next five runs, the last one and its end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.responses import Response

from horsies import monitoring
from horsies.core.models.schedule.config import ScheduleInfo
from horsies.core.scheduler.words import in_words
from horsies.core.types import Ok, TaskStatus
from horsies.web.answers import unavailable
from horsies.web.endpoints import Asked
from horsies.web.pages.frame import Viewer, with_viewer
from horsies.web.schedule_actions import schedules_of
from horsies.web.screens import Screen

POLL_S = 10  # no notification tells of schedules (M-75)
MOST_SHOWN = 500


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One line of the list. `is_known` is false for the state of a schedule of the code while the code is not here."""

    name: str
    state: str
    words: str
    source: str
    upcoming: tuple[datetime, ...]
    next_run_at: datetime | None
    last_run_at: datetime | None
    last_task_id: str | None
    last_status: TaskStatus | None
    run_count: int
    is_late: bool
    is_known: bool = True

    @property
    def is_run_time(self) -> bool:
        return self.source == "database"


async def schedules(viewer: Viewer) -> Response:
    states = {one.name: one for one in await viewer.read(monitoring.list_schedules)}
    listed = await schedules_of(Asked(viewer.dashboard, viewer.request)).list_async()
    if not isinstance(listed, Ok):
        raise unavailable(viewer.dashboard.database.redact(listed.error.message))
    known = {one.name: one for one in listed.value}
    names = sorted({*known, *states})[:MOST_SHOWN]
    ends = await _ends(viewer, [states[name].last_task_id for name in names if name in states])
    return await viewer.show(
        "schedules.html",
        "Schedules",
        poll=POLL_S,
        rows=[_row(name, known.get(name), states.get(name), ends) for name in names],
        total=len({*known, *states}),
    )


def _row(name: str, info: ScheduleInfo | None, state: Any, ends: dict[str, TaskStatus]) -> ScheduleRow:
    last_task_id = state.last_task_id if state is not None else None
    return ScheduleRow(
        name=name,
        state=_state(info, state),
        words=_words(info),
        source=state.source if info is None else info.source.value,
        upcoming=() if info is None else info.upcoming,
        next_run_at=None if state is None else state.next_run_at,
        last_run_at=None if state is None else state.last_run_at,
        last_task_id=last_task_id,
        last_status=None if last_task_id is None else ends.get(last_task_id),
        run_count=0 if state is None else state.run_count,
        is_late=state is not None and state.lag_seconds > 60,
        is_known=info is not None,
    )


def _state(info: ScheduleInfo | None, state: Any) -> str:
    if info is None:
        return "paused" if state.paused else "unknown"
    if info.problem is not None:
        return "unusable"
    if info.is_paused:
        return "paused"
    return "active" if info.is_active else "disabled"


def _words(info: ScheduleInfo | None) -> str:
    if info is None:
        return "defined in code that is not loaded here"
    if info.schedule is None:
        return info.problem or "unusable"
    return in_words(info.schedule.pattern, info.schedule.timezone)


async def _ends(viewer: Viewer, task_ids: list[str | None]) -> dict[str, TaskStatus]:
    """How the last tasks ended, as far as their rows still exist."""
    known = [one for one in task_ids if one is not None]
    found = await viewer.read(monitoring.get_task_summaries, known)
    return {one.task_id: one.status for one in found}


SCREENS = (Screen("/schedules", with_viewer(schedules)),)
