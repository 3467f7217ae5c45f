"""`horsies schedules`: the schedules of an app with their next and last runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer
from rich.text import Text

from horsies.cli import output
from horsies.cli.manual import AsJson, looking, print_json, print_table, printable
from horsies.cli.options import DatabaseUrl, Module
from horsies.core.brokers.results import hint_for
from horsies.core.errors import HorsiesError
from horsies.core.models.scheduling import ScheduleInfo
from horsies.core.scheduler.words import in_words
from horsies.core.types.result import Err


def schedules(
    module: Module,
    active: Annotated[bool, typer.Option("--active", help="Only active schedules.")] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """List the schedules of an app, from code and from the database: pattern, next five runs, last run and its task.

    Times are in the time zone of the schedule. If the first run is in the past, it is overdue: check that a scheduler
    is running.
    """
    with looking(module, database_url) as app:
        answer = app.schedules.list()
        if isinstance(answer, Err):
            notes = [app.config.broker.redact(answer.err_value.message)]
            raise HorsiesError("the database did not answer", notes=notes, help_text=hint_for(notes[0]))
    found = [one for one in answer.ok_value if one.is_active or not active]
    if as_json:
        print_json([_fields(one) for one in found])
    elif found:
        print_table(["schedule", "state", "when", "next runs", "last run", "last task"], [_row(one) for one in found])
    else:
        output.out().print("there are no schedules", markup=False)
    return 0


def _row(one: ScheduleInfo) -> list[object]:
    lines = "\n".join(_local(one, at) for at in one.upcoming)
    last = None if one.last_run_at is None else _local(one, one.last_run_at)
    return [one.name, _state(one), _words(one) or printable(one.problem or ""), Text(lines), last, one.last_task_id]


def _state(one: ScheduleInfo) -> Text:
    if one.problem is not None:
        return Text("unusable", style="bold red")
    if one.is_paused:
        return Text("paused", style="yellow")
    return Text("active", style="green") if one.is_active else Text("disabled", style="dim")


def _words(one: ScheduleInfo) -> str | None:
    return None if one.schedule is None else in_words(one.schedule.pattern, one.schedule.timezone)


def _local(one: ScheduleInfo, at: datetime) -> str:
    zone = ZoneInfo(one.schedule.timezone if one.schedule is not None else "UTC")
    return at.astimezone(zone).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")


def _fields(one: ScheduleInfo) -> dict[str, Any]:
    schedule = one.schedule
    return {
        "name": one.name,
        "source": one.source.value,
        "state": str(_state(one)),
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
