"""The parts of a schedule."""

# fmt: off
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
