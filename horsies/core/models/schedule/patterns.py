"""The patterns that most schedules need: intervals, and times of the hour, day, week or month."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import time, timedelta
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from horsies.core.models.base import Violation
from horsies.core.models.schedule.base import Positive, ScheduleModel, duplicates
from horsies.core.models.schedule.enums import Weekday
from horsies.core.models.schedule.wall import WallTimes, bits

# What does not come again within eight years is not a schedule (S-24): eight years are the longest that two 29ths of
# February lie apart.
HORIZON = timedelta(days=2922)
_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400}


class IntervalSchedule(ScheduleModel):
    """Runs at an interval: the sum of the units, counted from run to run. The time zone does not matter."""

    type: Literal["interval"] = "interval"
    seconds: Positive | None = Field(default=None, description="number of seconds")
    minutes: Positive | None = Field(default=None, description="number of minutes")
    hours: Positive | None = Field(default=None, description="number of hours")
    days: Positive | None = Field(default=None, description="number of days")

    @property
    def total_seconds(self) -> int:
        return sum((getattr(self, unit) or 0) * factor for unit, factor in _SECONDS.items())

    @cached_property
    def interval(self) -> timedelta:
        return timedelta(seconds=self.total_seconds)

    def _violations(self) -> Iterator[Violation]:
        if not self.total_seconds:
            yield Violation(tuple(_SECONDS), "an interval needs at least one of these values")
        if self.total_seconds > HORIZON.total_seconds():
            yield Violation(tuple(_SECONDS), "an interval is at most eight years")


def _is_not_a_number(value: object) -> object:
    if isinstance(value, int | float):  # pydantic would take it for seconds after midnight
        raise ValueError("the value must be a datetime.time")
    return value


def _is_a_time_of_the_wall_clock(value: time) -> time:
    if value.tzinfo is not None:
        raise ValueError("the time must not have a time zone; the schedule has one")
    if value.microsecond:
        raise ValueError("the time must be in whole seconds")
    return value.replace(fold=0)


TimeOfDay = Annotated[time, BeforeValidator(_is_not_a_number), AfterValidator(_is_a_time_of_the_wall_clock)]


class HourlySchedule(ScheduleModel):
    """Every hour at this minute and second."""

    type: Literal["hourly"] = "hourly"
    minute: int = Field(strict=True, ge=0, le=59, description="minutes after the hour")
    second: int = Field(default=0, strict=True, ge=0, le=59, description="seconds after the minute")

    @cached_property
    def wall_times(self) -> WallTimes:
        return WallTimes(self.second, bits([self.minute]))


class DailySchedule(ScheduleModel):
    """Every day at this time."""

    type: Literal["daily"] = "daily"
    time: TimeOfDay = Field(description="local time in the schedule's zone, a `datetime.time` in whole seconds")

    @cached_property
    def wall_times(self) -> WallTimes:
        return WallTimes(self.time.second, bits([self.time.minute]), bits([self.time.hour]))


class WeeklySchedule(ScheduleModel):
    """On these days of the week at this time."""

    type: Literal["weekly"] = "weekly"
    days: tuple[Weekday, ...] = Field(min_length=1, description='each day once; names are allowed: `"monday"`')
    time: TimeOfDay = Field(description="local time in the schedule's zone, a `datetime.time` in whole seconds")

    @cached_property
    def wall_times(self) -> WallTimes:
        week = list(Weekday)
        weekdays = bits(week.index(day) for day in self.days)
        return WallTimes(self.time.second, bits([self.time.minute]), bits([self.time.hour]), weekdays=weekdays)

    def _violations(self) -> Iterator[Violation]:
        for day in duplicates(self.days):
            yield Violation(("days",), f"{day} is listed more than once")


class MonthlySchedule(ScheduleModel):
    """On this day of the month at this time; months without that day are skipped."""

    type: Literal["monthly"] = "monthly"
    day: int = Field(strict=True, ge=1, le=31, description="day of the month")
    time: TimeOfDay = Field(description="local time in the schedule's zone, a `datetime.time` in whole seconds")

    @cached_property
    def wall_times(self) -> WallTimes:
        hours, days = bits([self.time.hour]), bits([self.day])
        return WallTimes(self.time.second, bits([self.time.minute]), hours, month_days=days)
