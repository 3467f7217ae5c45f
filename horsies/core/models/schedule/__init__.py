"""The parts of a schedule."""

from horsies.core.models.schedule.config import ScheduleConfig, SchedulePattern, TaskSchedule
from horsies.core.models.schedule.cron import CronSchedule
from horsies.core.models.schedule.days import BothDays, ByMonthDay, ByWeekday, DaySelector, EitherDay, EveryDay
from horsies.core.models.schedule.enums import Month, Weekday
from horsies.core.models.schedule.patterns import (
    DailySchedule,
    HourlySchedule,
    IntervalSchedule,
    MonthlySchedule,
    WeeklySchedule,
)
from horsies.core.models.schedule.terms import (
    CronEnumRange,
    CronEnumStep,
    CronEnumValues,
    CronEvery,
    CronRange,
    CronStep,
    CronValues,
)

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
