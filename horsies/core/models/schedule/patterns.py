"""The patterns that most schedules need (intervals, and times of the hour, day, week or month), and what all patterns
share: weekdays and months in the order in which ranges and steps count them, immutable models of which every mistake is
HRS-205, and `WallTimes`.

`WallTimes` is the normal form of every pattern with local times: a second and some minutes, hours, months and days.
Sets of small numbers are the bits of an `int`, so that the next member is found with one shift.
`scheduler/calendar.py` finds the next run.
"""

from calendar import isleap
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field

from horsies.core.errors import ErrorCode
from horsies.core.models.base import MOST, ConfigModel, Violation


class Weekday(StrEnum):
    """A day of the week; the week begins on Monday."""

    MONDAY = "monday"
    TUESDAY = "tuesday"
    WEDNESDAY = "wednesday"
    THURSDAY = "thursday"
    FRIDAY = "friday"
    SATURDAY = "saturday"
    SUNDAY = "sunday"


class Month(StrEnum):
    """A month of the year."""

    JANUARY = "january"
    FEBRUARY = "february"
    MARCH = "march"
    APRIL = "april"
    MAY = "may"
    JUNE = "june"
    JULY = "july"
    AUGUST = "august"
    SEPTEMBER = "september"
    OCTOBER = "october"
    NOVEMBER = "november"
    DECEMBER = "december"


HOURS = (1 << 24) - 1  # 0..23
MONTHS = (1 << 13) - 2  # 1..12
MONTH_DAYS = (1 << 32) - 2  # 1..31
WEEKDAYS = (1 << 7) - 1  # 0..6, Monday first
_FIVE_WEEKS = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class WallTimes:
    """The local times of a pattern: every combination of its fields. A day must match both day fields, or either."""

    second: int
    minutes: int
    hours: int = HOURS
    months: int = MONTHS
    month_days: int = MONTH_DAYS
    weekdays: int = WEEKDAYS
    days_match: Literal["both", "either"] = "both"

    @property
    def is_every_hour(self) -> bool:
        """Whether the pattern runs in both passes of an hour that the clocks repeat (S-23)."""
        return self.hours == HOURS


def bits(numbers: Iterable[int]) -> int:
    found = 0
    for number in numbers:
        found |= 1 << number
    return found


def numbers_of(mask: int) -> Iterator[int]:
    """The members in order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def first_from(mask: int, start: int) -> int | None:
    """The smallest member not smaller than `start`."""
    rest = mask >> start
    return start + (rest & -rest).bit_length() - 1 if rest else None


def days_in_month(times: WallTimes, year: int, month: int) -> int:
    """The days of this month that match."""
    weekday = date(year, month, 1).weekday()
    length = 29 if month == 2 and isleap(year) else _LENGTHS[month]
    # Bit 0 of `week` is the weekday of the first of the month.
    week = (times.weekdays >> weekday | times.weekdays << (7 - weekday)) & WEEKDAYS
    by_weekday = week * _FIVE_WEEKS << 1
    matching = times.month_days | by_weekday if times.days_match == "either" else times.month_days & by_weekday
    return matching & ((1 << (length + 1)) - 2)


# Neither a boolean nor a text is a number here: a stored schedule means exactly what its author wrote.
WholeNumber = Annotated[int, Field(strict=True, le=MOST)]
Positive = Annotated[int, Field(strict=True, ge=1, le=MOST)]


class SchedulePart(ConfigModel):
    """A part of a schedule."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CONFIG_INVALID_SCHEDULE

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with these fields changed, validated like any other, so that derived values are never stale."""
        fields = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**fields, **(update or {})})


def duplicates(values: Iterable[Hashable]) -> list[Hashable]:
    """The values that are listed more than once, each once."""
    return [value for value, times in Counter(values).items() if times > 1]


# A schedule must run again within eight years (S-24), the longest time between two 29ths of February.
HORIZON = timedelta(days=2922)
_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400}


class IntervalSchedule(SchedulePart):
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

    def in_words(self, timezone: str = "UTC") -> str:
        """Such as `every 5 minutes`. The time zone does not matter."""
        given = [(getattr(self, unit), unit) for unit in reversed(_SECONDS) if getattr(self, unit)]
        if len(given) == 1 and given[0][0] == 1:
            return f"every {given[0][1][:-1]}"
        return f"every {' '.join(f'{number} {unit[:-1] if number == 1 else unit}' for number, unit in given)}"

    def _violations(self) -> Iterator[Violation]:
        if not self.total_seconds:
            yield Violation(tuple(_SECONDS), "an interval needs at least one of these values")
        if self.total_seconds > HORIZON.total_seconds():
            yield Violation(tuple(_SECONDS), "an interval is at most eight years")


def _is_not_a_number(value: object) -> object:
    if isinstance(value, int | float):  # pydantic would read it as seconds after midnight
        raise ValueError("the value must be a datetime.time")
    return value


def _is_a_time_of_the_wall_clock(value: time) -> time:
    if value.tzinfo is not None:
        raise ValueError("the time must not have a time zone; the schedule has one")
    if value.microsecond:
        raise ValueError("the time must be in whole seconds")
    return value.replace(fold=0)


def clock(at: time) -> str:
    """Such as `09:00`, or `09:00:30`."""
    return at.isoformat("seconds" if at.second else "minutes")


TimeOfDay = Annotated[
    time,
    BeforeValidator(_is_not_a_number),
    AfterValidator(_is_a_time_of_the_wall_clock),
    Field(description="local time in the schedule's zone, a `datetime.time` in whole seconds"),
]


class HourlySchedule(SchedulePart):
    """Every hour at this minute and second."""

    type: Literal["hourly"] = "hourly"
    minute: int = Field(strict=True, ge=0, le=59, description="minutes after the hour")
    second: int = Field(default=0, strict=True, ge=0, le=59, description="seconds after the minute")

    @cached_property
    def wall_times(self) -> WallTimes:
        return WallTimes(self.second, bits([self.minute]))

    def in_words(self, timezone: str = "UTC") -> str:
        """Such as `every hour at :05 (UTC)`."""
        return f"every hour at :{self.minute:02}{f':{self.second:02}' if self.second else ''} ({timezone})"


class DailySchedule(SchedulePart):
    """Every day at this time."""

    type: Literal["daily"] = "daily"
    time: TimeOfDay

    @cached_property
    def wall_times(self) -> WallTimes:
        return WallTimes(self.time.second, bits([self.time.minute]), bits([self.time.hour]))

    def in_words(self, timezone: str = "UTC") -> str:
        """Such as `every day at 09:00 (Europe/Berlin)`."""
        return f"every day at {clock(self.time)} ({timezone})"


class WeeklySchedule(SchedulePart):
    """On these days of the week at this time."""

    type: Literal["weekly"] = "weekly"
    days: tuple[Weekday, ...] = Field(min_length=1, description='each day once; names are allowed: `"monday"`')
    time: TimeOfDay

    @cached_property
    def wall_times(self) -> WallTimes:
        week = list(Weekday)
        weekdays = bits(week.index(day) for day in self.days)
        return WallTimes(self.time.second, bits([self.time.minute]), bits([self.time.hour]), weekdays=weekdays)

    def in_words(self, timezone: str = "UTC") -> str:
        """Such as `every Monday and Friday at 09:00 (UTC)`."""
        days = [day.capitalize() for day in Weekday if day in self.days]
        named = f"{', '.join(days[:-1])} and {days[-1]}" if len(days) > 1 else days[0]
        return f"every {named} at {clock(self.time)} ({timezone})"

    def _violations(self) -> Iterator[Violation]:
        for day in duplicates(self.days):
            yield Violation(("days",), f"{day} is listed more than once")


class MonthlySchedule(SchedulePart):
    """On this day of the month at this time; months without that day are skipped."""

    type: Literal["monthly"] = "monthly"
    day: int = Field(strict=True, ge=1, le=31, description="day of the month")
    time: TimeOfDay

    @cached_property
    def wall_times(self) -> WallTimes:
        hours, days = bits([self.time.hour]), bits([self.day])
        return WallTimes(self.time.second, bits([self.time.minute]), hours, month_days=days)

    def in_words(self, timezone: str = "UTC") -> str:
        """Such as `every month on day 31 at 03:30 (UTC)`."""
        return f"every month on day {self.day} at {clock(self.time)} ({timezone})"
