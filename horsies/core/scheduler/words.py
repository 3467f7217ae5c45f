"""A pattern in words: what it matches, not how it was written (`*/15` and `0,15,30,45` read the same)."""

from collections.abc import Callable, Iterator

from horsies.core.models.schedule import IntervalSchedule, Month, SchedulePattern, Weekday
from horsies.core.models.schedule.patterns import HOURS, MONTH_DAYS, MONTHS, WEEKDAYS, WallTimes, numbers_of

_MONTHS = ["", *(month.value.capitalize() for month in Month)]
_DAYS = [day.value.capitalize() for day in Weekday]
_TIMES_LISTED = 4
_ITEMS_LISTED = 8


def in_words(pattern: SchedulePattern, timezone: str = "UTC") -> str:
    """Such as `every Monday at 09:00 (Europe/Berlin)`."""
    if isinstance(pattern, IntervalSchedule):
        return f"every {_interval(pattern)}"
    times = pattern.wall_times
    days, months = _days(times), _months(times)
    if clock := _times_of_day(times):
        when = f"{days or 'every day'} {months}".rstrip()
        return f"{when} at {clock} ({timezone})"
    return ", ".join(part for part in (_rhythm(times), days, months) if part) + f" ({timezone})"


def _interval(pattern: IntervalSchedule) -> str:
    units = [(unit, getattr(pattern, unit)) for unit in ("days", "hours", "minutes", "seconds")]
    given = [(unit, number) for unit, number in units if number is not None]
    if len(given) == 1 and given[0][1] == 1:
        return given[0][0][:-1]
    return " ".join(f"{number} {unit[:-1] if number == 1 else unit}" for unit, number in given)


def _times_of_day(times: WallTimes) -> str | None:
    """The single times, if they are few."""
    if times.hours == HOURS or times.hours.bit_count() * times.minutes.bit_count() > _TIMES_LISTED:
        return None
    hours, minutes, seconds = numbers_of(times.hours), list(numbers_of(times.minutes)), _seconds(times)
    return _listed(f"{hour:02}:{minute:02}{seconds}" for hour in hours for minute in minutes)


def _seconds(times: WallTimes) -> str:
    return f":{times.second:02}" if times.second else ""


def _rhythm(times: WallTimes) -> str:
    if (every := _step(times.minutes, 60)) is not None:
        hours = "" if times.hours == HOURS else f" from {_spans(times.hours, lambda hour: f'{hour:02}:00', _until)}"
        return ("every minute" if every == 1 else f"every {every} minutes") + hours
    at = _listed(f":{minute:02}{_seconds(times)}" for minute in numbers_of(times.minutes))
    if (every := _step(times.hours, 24)) is not None:
        return ("every hour" if every == 1 else f"every {every} hours") + f" at {at}"
    return f"at {at} of the hours {_spans(times.hours, str)}"


def _until(hour: int) -> str:
    return f"{hour:02}:59"


def _step(mask: int, size: int) -> int | None:
    """The n of `every n`, if the values are even steps from 0 that fit."""
    if mask & mask - 1 == 0:
        return None
    members = list(numbers_of(mask))
    step = members[1] - members[0]
    return step if size % step == 0 and members == list(range(0, size, step)) else None


def _days(times: WallTimes) -> str:
    month_days = "" if times.month_days == MONTH_DAYS else f"on the {_spans(times.month_days, _ordinal)}"
    if times.days_match == "either":
        return f"{month_days or 'every day'} or every {_spans(times.weekdays, _DAYS.__getitem__)}"
    weekdays = "" if times.weekdays == WEEKDAYS else _spans(times.weekdays, _DAYS.__getitem__)
    if month_days and weekdays:
        return f"{month_days} if it is a {weekdays.replace(' and ', ' or ')}"
    if weekdays:
        return f"every {weekdays}"
    return month_days and (month_days if times.months != MONTHS else f"every month {month_days}")


def _months(times: WallTimes) -> str:
    return "" if times.months == MONTHS else f"in {_spans(times.months, _MONTHS.__getitem__)}"


def _ordinal(number: int) -> str:
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _spans(mask: int, name: Callable[[int], str], last: Callable[[int], str] | None = None) -> str:
    """The members by name, three or more in a row as `first to last`."""

    def parts() -> Iterator[str]:
        for start, end in _runs(mask):
            if last is not None:
                yield f"{name(start)} to {last(end)}"
            elif end - start >= 2:
                yield f"{name(start)} to {name(end)}"
            else:
                yield from (name(number) for number in range(start, end + 1))

    return _listed(parts())


def _runs(mask: int) -> Iterator[tuple[int, int]]:
    while mask:
        start = (mask & -mask).bit_length() - 1
        length = (~(mask >> start) & (mask >> start) + 1).bit_length() - 1
        yield start, start + length - 1
        mask &= ~(((1 << length) - 1) << start)


def _listed(items: Iterator[str]) -> str:
    named = list(items)
    if len(named) > _ITEMS_LISTED:
        named = [*named[: _ITEMS_LISTED - 1], f"{len(named) - _ITEMS_LISTED + 1} more"]
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
