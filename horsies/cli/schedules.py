"""`horsies schedules`: the schedules of an app with their next and last runs."""

from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer

from horsies.cli import options, output, session, tables
from horsies.cli.tables import Column
from horsies.core.db import headline_of, hint_for
from horsies.core.errors import HorsiesError
from horsies.core.models.schedule import SchedulePattern, config
from horsies.core.types import Err


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


def in_words(pattern: SchedulePattern, timezone: str = "UTC") -> str:
    """The same as `pattern.in_words(timezone)`."""
    return pattern.in_words(timezone)


def _words(one: config.ScheduleInfo) -> str | None:
    return None if one.schedule is None else one.schedule.pattern.in_words(one.schedule.timezone)


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
