"""`horsies purge`: delete old ended tasks, or cancel the waiting tasks of a queue. Without --yes it only counts."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from horsies.cli import manual, output
from horsies.cli.completing import members
from horsies.cli.options import DatabaseUrl, OptionalModule, Queues, TaskNames, parse_age, parse_members, parse_names
from horsies.core.app import Horsies
from horsies.core.errors import HorsiesError
from horsies.core.recovery import purging
from horsies.core.recovery.purging import Purge, PurgeCount
from horsies.core.types.status import TASK_TERMINAL_STATES, TaskStatus

_ENDED = sorted(TASK_TERMINAL_STATES)
_NOW = timedelta(0)


def purge(
    module: OptionalModule = None,
    older_than: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_age,
            metavar="D",
            show_default="required; 0 with --waiting",
            help="Minimum age: time since the end, or since the send with --waiting (300, 30s, 5m, 2h, 30d).",
        ),
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            "-s",
            metavar="STATES",
            help="Only tasks in these states: completed, failed, cancelled, expired.",
            autocompletion=members(_ENDED),
        ),
    ] = None,
    queue: Queues = None,
    task: TaskNames = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Cancel the waiting tasks of the queues given with --queue.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Really do it; without this option the tasks are only counted.")
    ] = False,
    as_json: manual.AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Delete tasks that ended long ago, with their attempts; with --waiting, cancel tasks that have not started.

    Tasks of workflows are not touched; they are deleted together with their workflow. The command works in small
    batches while workers run, and you can interrupt it at any time. Retention (RecoveryConfig) deletes old records
    automatically; use this command for everything else.
    """
    chosen = Purge(
        age=older_than if older_than is not None else _NOW,
        statuses=parse_members(TaskStatus, status, "--status", _ENDED),
        queues=parse_names(queue, "--queue") or (),
        task_names=parse_names(task, "--task") or (),
    )
    _refuse_what_is_unclear(chosen, waiting=waiting, has_age=older_than is not None)
    with manual.opened(module, database_url) as app:
        count = purging.count_waiting_sync if waiting else purging.count_ended_sync
        groups = manual.value_of(count(app.get_broker(), chosen), app)
        done, is_complete = _act(app, chosen, waiting=waiting) if yes and groups else (0, True)
    total = done if yes else sum(group.count for group in groups)
    if as_json:
        manual.print_json(
            {
                "action": "cancel" if waiting else "delete",
                "dry_run": not yes,
                "count": total,
                "complete": is_complete,
                "groups": [asdict(group) for group in groups],
            }
        )
    else:
        _show(groups, total, waiting=waiting, is_dry=not yes)
    if not is_complete:
        output.say(
            "incomplete: it was interrupted, or another process is deleting now; run the command again to continue"
        )
    return 0 if is_complete else 1


def _refuse_what_is_unclear(chosen: Purge, *, waiting: bool, has_age: bool) -> None:
    if waiting and chosen.statuses:
        raise output.usage_error("--waiting and --status cannot be combined", "waiting tasks are always PENDING")
    if waiting and not chosen.queues:
        raise output.usage_error("--waiting needs --queue", "name the queue: horsies purge --waiting --queue mail")
    if not waiting and not has_age:
        raise output.usage_error(
            "--older-than is missing", "horsies purge --older-than 30d; --older-than 0 deletes all ended tasks"
        )


def _act(app: Horsies, chosen: Purge, *, waiting: bool) -> tuple[int, bool]:
    """How many tasks were changed, and whether those were all. Finished batches are kept, also after Ctrl-C."""
    batches: list[int] = []
    broker, is_complete = app.get_broker(), True
    try:
        if waiting:
            manual.value_of(purging.cancel_waiting_sync(broker, chosen, batches.append), app)
        else:
            is_complete = manual.value_of(purging.delete_ended_sync(broker, chosen, batches.append), app)
    except KeyboardInterrupt:
        is_complete = False
    except HorsiesError as problem:
        raise problem.with_note(f"{manual.count(sum(batches), 'task')} {_verb(waiting)} before that") from None
    return sum(batches), is_complete


def _show(groups: list[PurgeCount], total: int, *, waiting: bool, is_dry: bool) -> None:
    if not groups:
        output.out().print("no task matches", markup=False)
        return
    if is_dry:
        manual.print_table(["status", "queue", "name", "tasks"], [_row(group) for group in groups])
    tasks = manual.count(total, "task")
    told = f"dry run: {tasks} would be {_verb(waiting)}; --yes does it" if is_dry else f"{_verb(waiting)} {tasks}"
    output.out().print(told, markup=False)


def _verb(waiting: bool) -> str:
    return "cancelled" if waiting else "deleted"


def _row(group: PurgeCount) -> list[Any]:
    return [Text(group.status.value, style=manual.STYLES[group.status]), group.queue, group.task_name, group.count]
