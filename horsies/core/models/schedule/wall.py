"""The normal form of every pattern with local times.

A daily, a monthly or a cron schedule names a second and some minutes, hours, months and days. Sets of small numbers are
the bits of an `int`, so that the next member is found with one shift.
"""

from __future__ import annotations

from calendar import isleap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Literal

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
    week = (times.weekdays >> weekday | times.weekdays << (7 - weekday)) & WEEKDAYS  # as the first of the month has it
    by_weekday = week * _FIVE_WEEKS << 1
    matching = times.month_days | by_weekday if times.days_match == "either" else times.month_days & by_weekday
    return matching & ((1 << (length + 1)) - 2)
