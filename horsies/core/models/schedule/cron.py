"""The typed form of a cron schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Literal

from pydantic import Field

from horsies.core.models.base import Violation
from horsies.core.models.schedule.base import ScheduleModel
from horsies.core.models.schedule.days import DaySelector, EitherDay
from horsies.core.models.schedule.parse import cron_fields
from horsies.core.models.schedule.terms import (
    HOUR,
    MINUTE,
    MONTH,
    HourTerms,
    MinuteTerms,
    MonthTerms,
    enum_bits,
    numeric_bits,
)
from horsies.core.models.schedule.wall import WEEKDAYS, WallTimes, days_in_month, numbers_of


class CronSchedule(ScheduleModel):
    """Runs at second 0 of the minutes that match all four fields; a field matches if one of its terms does."""

    type: Literal["cron"] = "cron"
    minute: MinuteTerms = Field(description="numeric terms, 0 to 59")
    hour: HourTerms = Field(description="numeric terms, 0 to 23")
    month: MonthTerms = Field(description="terms for `Month`")
    day: DaySelector = Field(discriminator="type", description="which days")

    @classmethod
    def parse(cls, text: str) -> CronSchedule:
        """The typed form of a cron line: five fields, or a name such as `@hourly`."""
        return cls(**cron_fields(text))

    @cached_property
    def wall_times(self) -> WallTimes:
        return WallTimes(
            second=0,
            minutes=numeric_bits(self.minute, MINUTE),
            hours=numeric_bits(self.hour, HOUR),
            months=enum_bits(self.month, MONTH),
            month_days=self.day.month_day_bits,
            weekdays=self.day.weekday_bits,
            days_match="either" if isinstance(self.day, EitherDay) else "both",
        )

    def _violations(self) -> Iterator[Violation]:
        if not self._some_month_has_such_a_day():
            yield Violation(
                ("month", "day"), "none of these months has any of these days, so the schedule would never run"
            )

    def _some_month_has_such_a_day(self) -> bool:
        # A leap year has every day that a year can have, and each of them falls on every weekday in some year. Where
        # either day will do, the weekdays always come.
        on_any_weekday = replace(self.wall_times, weekdays=WEEKDAYS)
        return any(days_in_month(on_any_weekday, 2024, month) for month in numbers_of(on_any_weekday.months))
