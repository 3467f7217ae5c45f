"""What `app.schedules` returns: the state of schedules, and why one could not be changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias, TypeVar

from horsies.core.errors import HorsiesError
from horsies.core.models.schedule import TaskSchedule
from horsies.core.types.result import Err, Ok

T = TypeVar("T")


class ScheduleSource(StrEnum):
    """Where a schedule is defined."""

    CODE = "code"
    DATABASE = "database"


class ScheduleErrorCode(StrEnum):
    """Why nothing was done."""

    INVALID_SCHEDULE = "INVALID_SCHEDULE"
    SCHEDULE_IN_CODE = "SCHEDULE_IN_CODE"
    SCHEDULE_NOT_FOUND = "SCHEDULE_NOT_FOUND"
    DB_OPERATION_FAILED = "DB_OPERATION_FAILED"


@dataclass(frozen=True, slots=True)
class ScheduleError:
    """A change that was not made; `errors` are the mistakes in an invalid schedule."""

    code: ScheduleErrorCode
    message: str
    name: str | None = None
    retryable: bool = False
    errors: tuple[HorsiesError, ...] = ()
    exception: BaseException | None = None


ScheduleResult: TypeAlias = Ok[T] | Err[ScheduleError]


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """One schedule and its state. If the stored schedule cannot be used, `schedule` is None and `problem` says why."""

    name: str
    source: ScheduleSource
    schedule: TaskSchedule | None = field(repr=False)
    is_paused: bool
    problem: str | None
    next_run_at: datetime | None
    last_run_at: datetime | None
    last_task_id: str | None
    run_count: int
    upcoming: tuple[datetime, ...]

    @property
    def is_active(self) -> bool:
        """Whether it runs, if there is a scheduler."""
        return self.schedule is not None and self.schedule.enabled and not self.is_paused and self.problem is None
