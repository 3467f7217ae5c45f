"""What the calendar must say, found the slow way: minute by minute over the clock on the wall, term by term.

It shares nothing with the code under test but the models, and no arithmetic at all: whether a time matches is asked of
each term, and whether the clocks have skipped or repeated something is seen by looking at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from typing import Any
from zoneinfo import ZoneInfo

from horsies.core.models.schedule import (
    BothDays,
    ByMonthDay,
    ByWeekday,
    CronEnumRange,
    CronEnumStep,
    CronEnumValues,
    CronEvery,
    CronRange,
    CronSchedule,
    CronStep,
    CronValues,
    DailySchedule,
    EitherDay,
    EveryDay,
    HourlySchedule,
    Month,
    MonthlySchedule,
    SchedulePattern,
    Weekday,
    WeeklySchedule,
)

MINUTE = timedelta(minutes=1)
MONTHS, DAYS = list(Month), list(Weekday)


def matcher(pattern: SchedulePattern) -> Callable[[datetime], bool]:
    """Does the pattern name this minute on the wall? Each day and each time of the day is asked once."""
    of_day, of_time = cache(partial(names_day, pattern)), cache(partial(names_minute, pattern))
    return lambda wall: of_time(wall.hour, wall.minute) and of_day(wall.date())


def names_minute(pattern: SchedulePattern, hour: int, minute: int) -> bool:
    match pattern:
        case HourlySchedule():
            return minute == pattern.minute
        case DailySchedule() | WeeklySchedule() | MonthlySchedule():
            return (hour, minute) == (pattern.time.hour, pattern.time.minute)
        case CronSchedule():
            return one_matches(pattern.minute, range(60), minute) and one_matches(pattern.hour, range(24), hour)
    raise AssertionError(pattern)


def names_day(pattern: SchedulePattern, day: date) -> bool:
    match pattern:
        case HourlySchedule() | DailySchedule():
            return True
        case WeeklySchedule():
            return DAYS[day.weekday()] in pattern.days
        case MonthlySchedule():
            return day.day == pattern.day
        case CronSchedule():
            return one_matches(pattern.month, MONTHS, MONTHS[day.month - 1]) and is_day(pattern.day, day)
    raise AssertionError(pattern)


def is_day(selector: Any, day: date) -> bool:
    match selector:
        case EveryDay():
            return True
        case ByMonthDay():
            return is_month_day(selector, day)
        case ByWeekday():
            return is_weekday(selector, day)
        case EitherDay():
            return is_month_day(selector, day) or is_weekday(selector, day)
        case BothDays():
            return is_month_day(selector, day) and is_weekday(selector, day)
    raise AssertionError(selector)


def is_month_day(selector: Any, day: date) -> bool:
    return one_matches(selector.day_of_month, range(1, 32), day.day)


def is_weekday(selector: Any, day: date) -> bool:
    return one_matches(selector.day_of_week, DAYS, DAYS[day.weekday()])


def one_matches(terms: Sequence[Any], domain: Sequence[Any], value: Any) -> bool:
    return any(term_matches(term, domain, value) for term in terms)


def term_matches(term: Any, domain: Sequence[Any], value: Any) -> bool:
    place = domain.index(value)
    match term:
        case CronEvery():
            return True
        case CronStep(step=step) | CronEnumStep(step=step):
            return place % step == 0
        case CronValues(values=values) | CronEnumValues(values=values):
            return value in values
        case CronRange(start=start, end=end, step=step) | CronEnumRange(start=start, end=end, step=step):
            first, last = domain.index(start), domain.index(end)
            return first <= place <= last and (place - first) % step == 0
    raise AssertionError(term)


def second_of(pattern: SchedulePattern) -> int:
    if isinstance(pattern, HourlySchedule):
        return pattern.second
    return 0 if isinstance(pattern, CronSchedule) else pattern.time.second  # type: ignore[union-attr]


def fires_in_both_passes(pattern: SchedulePattern) -> bool:
    if isinstance(pattern, CronSchedule):
        return all(one_matches(pattern.hour, range(24), hour) for hour in range(24))
    return isinstance(pattern, HourlySchedule)


def brute_force(pattern: SchedulePattern, after: datetime, until: datetime, timezone: str) -> Iterator[datetime]:
    """Every instant of (after, until], by looking at the clock on the wall each minute.

    The look begins some hours before `after`, so that it knows what the wall has shown already. The clocks of the
    zones that are tried turn at whole minutes.
    """
    zone, second, again = ZoneInfo(timezone), timedelta(seconds=second_of(pattern)), fires_in_both_passes(pattern)
    instant = (after - timedelta(hours=6)).replace(second=0, microsecond=0)
    matches = matcher(pattern)
    shown = highest = on_the_wall(instant, zone)
    previous: datetime | None = None
    while (instant := instant + MINUTE) <= until:
        before, shown = shown, on_the_wall(instant, zone)
        found = []
        if any(matches(skipped) for skipped in minutes_between(before, shown)):
            found.append(instant)
        if matches(shown) and (shown > highest or again):
            found.append(instant + second)
        highest = max(highest, shown)
        for slot in found:
            if after < slot <= until and slot != previous:
                yield slot
                previous = slot


def minutes_between(before: datetime, shown: datetime) -> Iterator[datetime]:
    while (before := before + MINUTE) < shown:
        yield before


def on_the_wall(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def days_by_hand(pattern: SchedulePattern, start: datetime, years: int) -> Iterator[datetime]:
    """The days that match from that day on, one by one, for as many years."""
    day = datetime(start.year, start.month, start.day)
    while day.year <= start.year + years:
        if names_day(pattern, day.date()):
            yield day
        day += timedelta(days=1)


def turns_of(timezone: str, first_year: int, last_year: int) -> list[datetime]:
    """The instants at which the zone's clocks are turned."""
    zone, found = ZoneInfo(timezone), []
    day = datetime(first_year, 1, 1, tzinfo=UTC)
    while day.year <= last_year:
        following = day + timedelta(days=1)
        if day.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            found.append(turn_between(day, following, zone))
        day = following
    return found


def turn_between(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    old = low.astimezone(zone).utcoffset()
    while high - low > MINUTE:
        middle = low + (high - low) // (2 * MINUTE) * MINUTE
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == old else (low, middle)
    return high
