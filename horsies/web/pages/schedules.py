"""Schedules (M-91): what each sends and when, in words, the next five runs, the last one and its end, and who paused
it; and what its dialogs say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.responses import Response

from horsies import monitoring
from horsies.core.models.monitoring.history import AuditEntry, AuditOutcome
from horsies.core.models.schedule import TaskSchedule
from horsies.core.models.schedule.config import ScheduleInfo
from horsies.core.scheduler import plan
from horsies.core.store.schedules import ScheduleState
from horsies.core.text import visible
from horsies.core.types import Ok, TaskStatus
from horsies.web.answers import unavailable
from horsies.web.endpoints import Asked
from horsies.web.format import moment
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
    task_name: str | None = None
    paused: AuditEntry | None = None
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
    pauses = await _pauses(viewer) if any(one.paused for one in states.values()) else {}
    ends = await _ends(viewer, [states[name].last_task_id for name in names if name in states])
    return await viewer.show(
        "schedules.html",
        "Schedules",
        poll=POLL_S,
        rows=[_row(name, known.get(name), states.get(name), ends, pauses.get(name)) for name in names],
        total=len({*known, *states}),
    )


def _row(
    name: str, info: ScheduleInfo | None, state: Any, ends: dict[str, TaskStatus], pause: AuditEntry | None
) -> ScheduleRow:
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
        task_name=_task_name(info, state),
        paused=pause if state is not None and state.paused else None,
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


def _task_name(info: ScheduleInfo | None, state: Any) -> str | None:
    if info is not None and info.schedule is not None:
        return info.schedule.task_name
    stored = None if state is None or state.definition is None else state.definition.get("task_name")
    return stored if isinstance(stored, str) else None


async def _pauses(viewer: Viewer) -> dict[str, AuditEntry]:
    """Who paused which schedule last, as far as it was not resumed since, and somebody wrote it down."""
    found: dict[str, AuditEntry] = {}
    for action in ("schedule.pause", "schedule.resume"):
        read = await monitoring.list_audit(viewer.dashboard.broker, action=action, limit=MOST_SHOWN)
        for entry in read.value.items if isinstance(read, Ok) else ():
            for name in entry.target_ids if entry.outcome == AuditOutcome.DONE else ():
                if name not in found or found[name].audit_id < entry.audit_id:
                    found[name] = entry
    return {name: entry for name, entry in found.items() if entry.action == "schedule.pause"}


def _words(info: ScheduleInfo | None) -> str:
    if info is None:
        return "defined in code that is not loaded here"
    if info.schedule is None:
        return info.problem or "unusable"
    return info.schedule.pattern.in_words(info.schedule.timezone)


async def _ends(viewer: Viewer, task_ids: list[str | None]) -> dict[str, TaskStatus]:
    """How the last tasks ended, as far as their rows still exist."""
    known = [one for one in task_ids if one is not None]
    found = await viewer.read(monitoring.get_task_summaries, known)
    return {one.task_id: one.status for one in found}


async def about_pausing(viewer: Viewer, name: str) -> str:
    return "It does not run until it is resumed."


async def about_resuming(viewer: Viewer, name: str) -> str:
    """What becomes of the runs that it missed, as the scheduler would decide it."""
    schedule = await _defined(viewer, name)
    state = next((one for one in await viewer.read(monitoring.list_schedules) if one.name == name), None)
    if schedule is None or state is None:
        return "It runs again as it says."
    if not schedule.enabled:
        return "It is disabled, too: it does not run until that is changed."
    run = (state.last_run_at, state.next_run_at, state.last_task_id, state.run_count, state.config_hash)
    step = plan.decide(schedule, ScheduleState(name, *run), viewer.now, most=1)
    if isinstance(step, plan.Wait):
        return f"It runs again. It has missed no run: the next one is at {moment(step.next_run_at)}."
    if not isinstance(step, plan.Fire):
        return f"It runs again, from its next time on: {moment(step.next_run_at)}."
    missed = f"It runs again. It has missed runs since {moment(state.next_run_at)}"
    if schedule.catch_up_missed:
        return f"{missed}: each of them is made up for at once."
    return f"{missed}: it runs once at once, not once for each of them."


async def _defined(viewer: Viewer, name: str) -> TaskSchedule | None:
    """The schedule itself, if it can be read here."""
    listed = await schedules_of(Asked(viewer.dashboard, viewer.request)).list_async()
    found = next((one for one in listed.value if one.name == name), None) if isinstance(listed, Ok) else None
    return None if found is None else found.schedule


async def about_triggering(viewer: Viewer, name: str) -> str:
    task = await _defined(viewer, name)
    if task is None:
        return "Its task is sent now, in addition to its next runs."
    where = "" if task.queue_name is None else f" to the queue {visible(task.queue_name)}"
    return f"The task {visible(task.task_name)} is sent now{where}, in addition to the next runs."


SCREENS = (Screen("/schedules", with_viewer(schedules)),)
