"""The commands about the past: `horsies failures` groups failed tasks (M-45c), and `horsies audit` lists what people
did (M-49b)."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from horsies.cli import options, output, session, tables
from horsies.cli.tables import Column
from horsies.core.models.monitoring import history
from horsies.core.models.monitoring.tasks import to_jsonable
from horsies.monitoring import list_audit, list_failures


def failures(
    module: options.OptionalModule = None,
    since: Annotated[
        timedelta,
        typer.Option(parser=options.parse_age, metavar="D", help="Only what failed within this time: 30m, 6h, 7d."),
    ] = "24h",  # type: ignore[assignment]  # read by the parser, like what is typed
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many groups.")] = 50,
    wide: options.Wide = False,
    columns: options.Columns = None,
    as_json: options.AsJson = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Group failed tasks by name and error code, the most frequent first, with one example of each. Times are UTC.

    The numbers come from statistics that workers write once a minute.
    """
    table = tables.chosen(_FAILURES, columns, wide=wide, is_table=not as_json)
    with session.open_read_only(module, database_url) as app:
        asked = list_failures(app.get_broker(), since=datetime.now(UTC) - since, limit=limit)
        report = session.answer_of(asyncio.run(asked), app)
    if as_json:
        output.print_json(to_jsonable(report))
    elif report.groups:
        output.print_rows(table, report.groups)
    else:
        output.write(f"no task has failed since {output.text_of(report.since)}, as far as the statistics say")
    return 0


_BARS = " ▁▂▃▄▅▆▇█"


def _trend(group: history.FailureGroup) -> str:
    """One bar for each step; the highest is the largest number."""
    most = max(group.trend, default=0) or 1
    return "".join(_BARS[-(-number * (len(_BARS) - 1) // most)] for number in group.trend)


_FAILURES = (
    Column("failed", lambda one: one.count),
    Column("name", lambda one: one.task_name, folds=True),
    Column("error", lambda one: one.error_code, folds=True),
    Column("trend", _trend, leaves=2),
    Column("first", lambda one: one.first_seen, leaves=1),
    Column("last", lambda one: one.last_seen, leaves=3),
    Column("example", lambda one: one.example_task_id),
)


def audit(
    module: options.OptionalModule = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--task", "-t", metavar="ID", help="Only what was done to this task, workflow, worker or schedule."
        ),
    ] = None,
    actor: Annotated[str | None, typer.Option(metavar="NAME", help="Only what this person did.")] = None,
    action: Annotated[str | None, typer.Option(metavar="NAME", help="Only this action, such as task.cancel.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many.")] = 50,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Continue where a list ended; it says with which cursor.")
    ] = None,
    wide: options.Wide = False,
    columns: options.Columns = None,
    as_json: options.AsJson = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """List what people did or tried to do through the dashboard, the latest first. Times are UTC.

    An action that has only begun was interrupted, or is under way: it is not known whether it was done.
    """
    table = tables.chosen(_AUDIT, columns, wide=wide, is_table=not as_json)
    with session.open_read_only(module, database_url) as app:
        asked = list_audit(app.get_broker(), target_id=target, actor=actor, action=action, limit=limit, after=after)
        page = session.answer_of(asyncio.run(asked), app)
    if as_json:
        output.print_json(to_jsonable(page))
        return 0
    if page.items:
        output.print_rows(table, page.items)
    else:
        output.write("nothing was written down" if not page.is_partial else "nothing matches so far")
    if page.next_cursor is not None:
        output.write(f"--after {page.next_cursor} shows what follows")
    return 0


def _targets(entry: history.AuditEntry) -> str:
    more = len(entry.target_ids) - 1
    first = entry.target_ids[0] if entry.target_ids else ""
    return f"{first} and {more} more" if more > 0 else first


def _details(entry: history.AuditEntry) -> str:
    return ", ".join(f"{name}: {value}" for name, value in entry.details.items())


_STYLES = {"done": "green", "refused": "yellow", "failed": "bold red", "begun": "cyan"}
_AUDIT = (
    Column("when", lambda one: one.at),
    Column("who", lambda one: one.actor, folds=True),
    Column("action", lambda one: one.action),
    Column("outcome", lambda one: output.styled((one.outcome, _STYLES.get(one.outcome, "default")))),
    Column("what", lambda one: one.target_kind, leaves=2),
    Column("id", _targets, folds=True),
    Column("details", _details, folds=True, leaves=1),
    Column("ended", lambda one: one.ended_at, extra=True),
    Column("entry", lambda one: one.audit_id, extra=True),
)
