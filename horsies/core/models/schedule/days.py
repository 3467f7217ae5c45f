"""The days on which a cron schedule runs."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from horsies.core.models.schedule.base import ScheduleModel
from horsies.core.models.schedule.terms import (
    DAY_OF_MONTH,
    WEEKDAY,
    MonthDayTerms,
    WeekdayTerms,
    enum_bits,
    numeric_bits,
)
from horsies.core.models.schedule.wall import MONTH_DAYS, WEEKDAYS


class _Days(ScheduleModel):
    """A day selector: the days of the month and of the week that it names."""

    @property
    def month_day_bits(self) -> int:
        return MONTH_DAYS

    @property
    def weekday_bits(self) -> int:
        return WEEKDAYS


class _MonthDays(_Days):
    day_of_month: MonthDayTerms = Field(description="numeric terms, 1 to 31")

    @property
    def month_day_bits(self) -> int:
        return numeric_bits(self.day_of_month, DAY_OF_MONTH)


class _WeekDays(_Days):
    day_of_week: WeekdayTerms = Field(description="terms for `Weekday`")

    @property
    def weekday_bits(self) -> int:
        return enum_bits(self.day_of_week, WEEKDAY)


class EveryDay(_Days):
    """All days."""

    type: Literal["every_day"] = "every_day"


class ByMonthDay(_MonthDays):
    """These days of the month."""

    type: Literal["by_month_day"] = "by_month_day"


class ByWeekday(_WeekDays):
    """These days of the week."""

    type: Literal["by_weekday"] = "by_weekday"


class EitherDay(_WeekDays, _MonthDays):
    """Days that at least one of the two fields names."""

    type: Literal["either_day"] = "either_day"


class BothDays(_WeekDays, _MonthDays):
    """Days that both fields name: the 13th, if it is a Friday."""

    type: Literal["both_days"] = "both_days"


DaySelector: TypeAlias = EveryDay | ByMonthDay | ByWeekday | EitherDay | BothDays
