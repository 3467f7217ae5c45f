"""A scheduled task (`TaskSchedule`), the settings of the scheduler (`ScheduleConfig`), and what `app.schedules`
returns: the state of schedules, and why one could not be changed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, TypeAlias, TypeVar
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field

from horsies.core.errors import HorsiesError, SourceLocation
from horsies.core.models.base import Violation
from horsies.core.models.failures import OperationFailed
from horsies.core.models.schedule import cron, patterns
from horsies.core.types import Err, Ok

SchedulePattern: TypeAlias = (
    patterns.IntervalSchedule
    | patterns.HourlySchedule
    | patterns.DailySchedule
    | patterns.WeeklySchedule
    | patterns.MonthlySchedule
    | cron.CronSchedule
)


@lru_cache(maxsize=1024)  # zoneinfo itself keeps the last eight only, and thousands of schedules share a few
def _is_a_known_zone(name: str) -> str:
    # These names are not zones: they stand for the machine's own zone, or for variants of the whole database.
    if name in ("localtime", "posixrules") or name.startswith(("posix/", "right/")):
        raise ValueError(f"{name!r} is not the IANA name of a time zone")
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, a path, or a directory of zones
        raise ValueError(f"{name!r} is not a time zone that this machine knows") from None
    return name


class TaskSchedule(patterns.SchedulePart):
    """A task and when it is sent."""

    name: str = Field(
        min_length=1, max_length=255, description="unique; the state of the schedule is stored under this name"
    )
    task_name: str = Field(min_length=1, description="the task that is sent")
    pattern: SchedulePattern = Field(discriminator="type", description="when")
    args: tuple[Any, ...] = Field(default=(), description="positional arguments of the task")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="named arguments of the task")
    queue_name: str | None = Field(default=None, description="the queue to send to; `None`: the task's queue")
    enabled: bool = Field(default=True, description="`False`: the schedule does not run and keeps its state")
    timezone: Annotated[str, AfterValidator(_is_a_known_zone)] = Field(
        default="UTC", description="IANA name of the time zone of the pattern"
    )
    catch_up_missed: bool = Field(default=False, description="send every missed run, not only the latest")
    max_catch_up_runs: int = Field(
        default=100, ge=1, le=10_000, strict=True, description="most missed runs sent in one check"
    )

    def __init__(self, **data: Any) -> None:
        super().__init__(**data)
        # This is neither a field nor a private attribute of pydantic's, because equality must not depend on it.
        self.__dict__["_written_at"] = SourceLocation.of_caller()

    @property
    def location(self) -> SourceLocation | None:
        """The line of code that made it; None if no line of a program made it."""
        place: SourceLocation | None = self.__dict__.get("_written_at")
        return place


class ScheduleConfig(patterns.SchedulePart):
    """What the scheduler sends, and how often it checks."""

    enabled: bool = Field(default=True, description="`False`: a scheduler refuses to start")
    check_interval_seconds: int = Field(
        default=1, ge=1, le=60, strict=True, description="time between checks for due runs"
    )
    schedules: list[TaskSchedule] = Field(default_factory=list, description="the schedules that are defined in code")

    def _violations(self) -> Iterator[Violation]:
        for name in patterns.duplicates(schedule.name for schedule in self.schedules):
            yield Violation(("schedules",), f"the name {name!r} is used more than once")


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
class ScheduleError(OperationFailed):
    """A change that was not made; `errors` are the mistakes in an invalid schedule."""

    code: ScheduleErrorCode
    name: str | None = None
    errors: tuple[HorsiesError, ...] = ()


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
