"""When a pattern runs: pure functions from a pattern, a time and a time zone to times, all in UTC.

A pattern names local times. The next one is found field by field, so its distance does not matter. One rule turns it
into an absolute time: it runs when the local clock first shows that time or has passed it. If the clocks skip the time,
this is the end of the gap (S-22); if they repeat it, this is the first pass (S-23). Several times within one gap are
one run. A pattern that runs every hour also runs in the second pass. Intervals do not depend on local time.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from horsies.core.models.schedule import IntervalSchedule, SchedulePattern
from horsies.core.models.schedule.patterns import HORIZON, WallTimes, days_in_month, first_from

_SECOND = timedelta(seconds=1)
_YEARS = HORIZON.days // 365


def next_occurrence(pattern: SchedulePattern, after: datetime, timezone: str) -> datetime | None:
    """The first time strictly later than `after`, in UTC; None if there is none within eight years.

    An interval counts from `after`: pass the previous slot and not the present time, and it does not drift (S-21).
    """
    try:
        if isinstance(pattern, IntervalSchedule):
            return after.astimezone(UTC) + pattern.interval
        found = _next_on_the_wall(pattern.wall_times, after, _zone(timezone))
    except OverflowError:  # the calendar ends with the year 9999
        return None
    return found if found is not None and found - after <= HORIZON else None


def latest_occurrence(pattern: SchedulePattern, after: datetime, until: datetime, timezone: str) -> datetime | None:
    """The last time later than `after` and not later than `until`, without going through those between."""
    if isinstance(pattern, IntervalSchedule):
        times = (until - after) // pattern.interval
        return after.astimezone(UTC) + times * pattern.interval if times > 0 else None
    first = next_occurrence(pattern, after, timezone)
    if first is None or first > until:
        return None
    latest = first
    # In seconds after `first`: the last run is at or after `low`, and before `high`.
    low, high = 0, _seconds(until - first) + 1
    while high - low > 1:
        middle = (low + high) // 2
        found = next_occurrence(pattern, first + middle * _SECOND, timezone)
        if found is not None and found <= until:
            latest, low = found, _seconds(found - first)
        else:
            high = middle
    return latest


def occurrences(
    pattern: SchedulePattern,
    after: datetime,
    timezone: str,
    *,
    until: datetime | None = None,
    count: int | None = None,
) -> Iterator[datetime]:
    """The times later than `after`, in order: those not later than `until`, and at most `count`."""
    left, slot = count, after
    while left is None or left > 0:
        following = next_occurrence(pattern, slot, timezone)
        if following is None or (until is not None and following > until):
            return
        yield following
        slot = following
        left = None if left is None else left - 1


_zone = lru_cache(maxsize=1024)(ZoneInfo)  # zoneinfo itself keeps the last eight only


def _next_on_the_wall(times: WallTimes, after: datetime, zone: ZoneInfo) -> datetime | None:
    shown = after.astimezone(zone)
    following = shown.replace(tzinfo=None, fold=0, microsecond=0) + _SECOND
    if shown.replace(fold=1 - shown.fold).utcoffset() == shown.utcoffset():
        return _first_shown(_first_time(times, following), zone)
    turn = _turn_back(shown)
    # During the second pass the clock shows no new time until the repetition is over.
    found = _first_shown(_first_time(times, turn.over if shown.fold else following), zone)
    if not times.is_every_hour:
        return found
    repeated = _first_time(times, following if shown.fold else turn.again)
    if repeated is None or repeated >= turn.over:
        return found
    second_pass = turn.instant + (repeated - turn.again)
    return second_pass if found is None else min(found, second_pass)


class _TurnBack(NamedTuple):
    """Clocks that are set back: when, what they show from then on, and what they showed until then."""

    instant: datetime
    again: datetime
    over: datetime


def _turn_back(shown: datetime) -> _TurnBack:
    """The repetition during which the local clock shows this time."""
    zone, first, second = shown.tzinfo, shown.replace(fold=0), shown.replace(fold=1)
    new = second.utcoffset()
    instant = _first_moment(
        first.astimezone(UTC), second.astimezone(UTC), lambda moment: moment.astimezone(zone).utcoffset() == new
    )
    again = instant.astimezone(zone).replace(tzinfo=None, fold=0)
    return _TurnBack(instant, again, again + (second.astimezone(UTC) - first.astimezone(UTC)))


def _first_shown(wall: datetime | None, zone: ZoneInfo) -> datetime | None:
    """When the local clock first shows this time, or has passed it."""
    if wall is None:
        return None
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if _on_the_wall(instant, zone) == wall:
        return instant
    # The clocks skip this time. With the offset before the gap it is after the gap, with the offset after the gap it is
    # before the gap.
    earlier = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return _first_moment(earlier, instant, lambda moment: _on_the_wall(moment, zone) >= wall)


def _on_the_wall(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _first_moment(low: datetime, high: datetime, has_happened: Callable[[datetime], bool]) -> datetime:
    """The first whole second later than `low` at which it has happened; at `high` it has. Clocks change at whole
    seconds."""
    start = low.replace(microsecond=0)
    before, at = 0, _seconds(high - start)
    while at - before > 1:
        middle = (before + at) // 2
        if has_happened(start + middle * _SECOND):
            at = middle
        else:
            before = middle
    return start + at * _SECOND


def _seconds(span: timedelta) -> int:
    return span // _SECOND


def _first_time(times: WallTimes, start: datetime) -> datetime | None:
    """The first local time from `start` on; None if there is none in this year and the following eight."""
    year, month, day = start.year, start.month, start.day
    if times.months >> month & 1 and days_in_month(times, year, month) >> day & 1:
        clock = _first_time_of_day(times, start.hour, start.minute + (start.second > times.second))
        if clock is not None:
            return start.replace(hour=clock[0], minute=clock[1], second=times.second)
    found = _first_day(times, year, month, day + 1)
    clock = _first_time_of_day(times, 0, 0)
    return datetime(*found, *clock, times.second) if found is not None and clock is not None else None


def _first_time_of_day(times: WallTimes, hour: int, minute: int) -> tuple[int, int] | None:
    if times.hours >> hour & 1:
        found = first_from(times.minutes, minute)
        if found is not None:
            return hour, found
    following, first = first_from(times.hours, hour + 1), first_from(times.minutes, 0)
    return (following, first) if following is not None and first is not None else None


def _first_day(times: WallTimes, year: int, month: int, day: int) -> tuple[int, int, int] | None:
    found = first_from(days_in_month(times, year, month), day) if times.months >> month & 1 else None
    if found is not None:
        return year, month, found
    for later in range(year, min(year + _YEARS, datetime.max.year) + 1):
        at = first_from(times.months, month + 1 if later == year else 1)
        while at is not None:
            found = first_from(days_in_month(times, later, at), 1)
            if found is not None:
                return later, at, found
            at = first_from(times.months, at + 1)
    return None
