"""`horsies schedules`: the schedules of an app with their next and last runs. `in_words` describes what a pattern
matches and not how it was written: `*/15` and `0,15,30,45` read the same.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer

from horsies.cli import options, output, session, tables
from horsies.cli.tables import Column
from horsies.core.db import headline_of, hint_for
from horsies.core.errors import HorsiesError
from horsies.core.models.schedule import IntervalSchedule, Month, SchedulePattern, Weekday, config
from horsies.core.models.schedule.patterns import HOURS, MONTH_DAYS, MONTHS, WEEKDAYS, WallTimes, numbers_of
from horsies.core.types import Err

_MONTHS = ["", *(month.value.capitalize() for month in Month)]
_DAYS = [day.value.capitalize() for day in Weekday]
_TIMES_LISTED = 4
_ITEMS_LISTED = 8


def schedules(
    module: options.Module,
    active: Annotated[bool, typer.Option("--active", help="Only active schedules.")] = False,
    wide: options.Wide = False,
    columns: options.Columns = None,
    as_json: options.AsJson = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """List the schedules of an app, from code and from the database: pattern, next five runs, last run and its task.

    Times are in the time zone of the schedule. If the first run is in the past, it is overdue: check that a scheduler
    is running.
    """
    table = tables.chosen(_COLUMNS, columns, wide=wide, is_table=not as_json)
    with session.open_read_only(module, database_url) as app:
        answer = app.schedules.list()
        if isinstance(answer, Err):
            notes = [app.config.broker.redact(answer.err_value.message)]
            raise HorsiesError(headline_of(notes[0]), notes=notes, help_text=hint_for(notes[0]))
    found = [one for one in answer.ok_value if one.is_active or not active]
    if as_json:
        output.print_json([_fields(one) for one in found])
    elif found:
        output.print_rows(table, found)
    else:
        output.write("there are no schedules")
    return 0


def _state(one: config.ScheduleInfo) -> tuple[str, str]:
    """The state and its style."""
    if one.problem is not None:
        return "unusable", "bold red"
    if one.is_paused:
        return "paused", "yellow"
    return ("active", "green") if one.is_active else ("disabled", "dim")


def _words(one: config.ScheduleInfo) -> str | None:
    return None if one.schedule is None else in_words(one.schedule.pattern, one.schedule.timezone)


def _local(one: config.ScheduleInfo, at: datetime) -> str:
    zone = ZoneInfo(one.schedule.timezone if one.schedule is not None else "UTC")
    return at.astimezone(zone).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")


_COLUMNS = (
    Column("schedule", lambda one: one.name),
    Column("state", lambda one: output.styled(_state(one))),
    Column("when", lambda one: _words(one) or one.problem, folds=True),
    Column("next runs", lambda one: output.stacked(_local(one, at) for at in one.upcoming)),
    Column("last run", lambda one: one.last_run_at and _local(one, one.last_run_at), leaves=1),
    Column("last task", lambda one: one.last_task_id, leaves=2),
    Column("runs", lambda one: one.run_count, extra=True),
    Column("source", lambda one: one.source.value, extra=True),
    Column("task", lambda one: None if one.schedule is None else one.schedule.task_name, extra=True),
)


def _fields(one: config.ScheduleInfo) -> dict[str, Any]:
    schedule = one.schedule
    return {
        "name": one.name,
        "source": one.source.value,
        "state": _state(one)[0],
        "problem": one.problem,
        "task_name": None if schedule is None else schedule.task_name,
        "queue_name": None if schedule is None else schedule.queue_name,
        "pattern": None if schedule is None else schedule.pattern.model_dump(mode="json"),
        "in_words": _words(one),
        "timezone": None if schedule is None else schedule.timezone,
        "next_runs": list(one.upcoming),
        "next_run_at": one.next_run_at,
        "last_run_at": one.last_run_at,
        "last_task_id": one.last_task_id,
        "run_count": one.run_count,
    }


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
