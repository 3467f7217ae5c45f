"""The mistakes of a schedule that can be found before it runs (S-04): used by the check, at the start of the scheduler,
and when a schedule is added at run time.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import UTC, datetime

from horsies.core.errors import ConfigurationError, ErrorCode, HorsiesError, RegistryError
from horsies.core.models.app import AppConfig
from horsies.core.models.schedule import ScheduleConfig, TaskSchedule
from horsies.core.scheduler.calendar import next_occurrence
from horsies.core.scheduler.payloads import HasTasks, payload_of
from horsies.core.types.result import Err


def require_schedule(config: AppConfig) -> ScheduleConfig:
    """The settings of the scheduler; HRS-205 if there are none, or if they are disabled (S-40)."""
    schedule = config.schedule
    if schedule is not None and schedule.enabled:
        return schedule
    why = "has no AppConfig.schedule" if schedule is None else "has AppConfig.schedule with enabled=False"
    raise ConfigurationError(
        f"the app {why}: there is nothing for a scheduler to do",
        code=ErrorCode.CONFIG_INVALID_SCHEDULE,
        help_text="AppConfig(..., schedule=ScheduleConfig(schedules=[...])); without schedules it serves those that "
        "are put in place at run time",
    )


def schedule_problems(app: HasTasks, schedule: TaskSchedule, *, is_stored: bool = False) -> Iterator[HorsiesError]:
    """The mistakes of a schedule; none if it is valid. The arguments of a stored schedule are already JSON."""
    if "\0" in schedule.name or schedule.name.encode("utf-8", "replace").decode() != schedule.name:
        yield _problem(schedule, "its name contains a NUL or a lone surrogate, which PostgreSQL cannot store")
    if next_occurrence(schedule.pattern, datetime.now(UTC), schedule.timezone) is None:
        yield _problem(schedule, "its pattern has no run within the next eight years")
    if schedule.task_name not in app.tasks:
        yield _no_such_task(app, schedule)
    elif isinstance(made := payload_of(app, schedule, is_stored=is_stored), Err):
        yield _problem(schedule, made.error)


def _no_such_task(app: HasTasks, schedule: TaskSchedule) -> HorsiesError:
    near = difflib.get_close_matches(schedule.task_name, list(app.tasks), n=3)
    return RegistryError(
        f"schedule {schedule.name!r}: there is no task {schedule.task_name!r}",
        code=ErrorCode.TASK_NOT_REGISTERED,
        location=schedule.location,
        help_text=f"did you mean {', '.join(near)}?" if near else None,
    )


def _problem(schedule: TaskSchedule, why: str) -> HorsiesError:
    return ConfigurationError(
        f"schedule {schedule.name!r}: {why}", code=ErrorCode.CONFIG_INVALID_SCHEDULE, location=schedule.location
    )
