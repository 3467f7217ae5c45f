"""The parts of a schedule. Each name is imported at its first use, as in `horsies.core.models.workflow`."""

# fmt: off
from typing import TYPE_CHECKING, Any

import horsies

if TYPE_CHECKING:
    from horsies.core.models.schedule.config import ScheduleConfig, SchedulePattern, TaskSchedule
    from horsies.core.models.schedule.cron import CronSchedule
    from horsies.core.models.schedule.cron_terms import (
        BothDays, ByMonthDay, ByWeekday, CronEnumRange, CronEnumStep, CronEnumValues, CronEvery, CronRange, CronStep,
        CronValues, DaySelector, EitherDay, EveryDay,
    )
    from horsies.core.models.schedule.patterns import (
        DailySchedule, HourlySchedule, IntervalSchedule, Month, MonthlySchedule, Weekday, WeeklySchedule,
    )
# fmt: on

__all__ = [
    "BothDays",
    "ByMonthDay",
    "ByWeekday",
    "CronEnumRange",
    "CronEnumStep",
    "CronEnumValues",
    "CronEvery",
    "CronRange",
    "CronSchedule",
    "CronStep",
    "CronValues",
    "DailySchedule",
    "DaySelector",
    "EitherDay",
    "EveryDay",
    "HourlySchedule",
    "IntervalSchedule",
    "Month",
    "MonthlySchedule",
    "ScheduleConfig",
    "SchedulePattern",
    "TaskSchedule",
    "Weekday",
    "WeeklySchedule",
]


if not TYPE_CHECKING:  # a checker that saw this function would accept every name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(horsies, name)
