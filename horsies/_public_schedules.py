"""What schedules are made of: these names of `horsies` are in `horsies.core.models.schedule` too. See `_public.py`."""

# fmt: off
from horsies.core.models.schedule.config import (
    ScheduleConfig as ScheduleConfig, SchedulePattern as SchedulePattern, TaskSchedule as TaskSchedule,
)
from horsies.core.models.schedule.cron import CronSchedule as CronSchedule
from horsies.core.models.schedule.cron_terms import (
    BothDays as BothDays, ByMonthDay as ByMonthDay, ByWeekday as ByWeekday, CronEnumRange as CronEnumRange,
    CronEnumStep as CronEnumStep, CronEnumValues as CronEnumValues, CronEvery as CronEvery, CronRange as CronRange,
    CronStep as CronStep, CronValues as CronValues, DaySelector as DaySelector, EitherDay as EitherDay,
    EveryDay as EveryDay,
)
from horsies.core.models.schedule.patterns import (
    DailySchedule as DailySchedule, HourlySchedule as HourlySchedule, IntervalSchedule as IntervalSchedule,
    Month as Month, MonthlySchedule as MonthlySchedule, Weekday as Weekday, WeeklySchedule as WeeklySchedule,
)
