"""`horsies tasks`: the list of tasks, filtered, sorted, page by page (M-45, M-46); `--watch` updates it."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from horsies.cli import manual, output
from horsies.cli.completing import members
from horsies.cli.options import DatabaseUrl, OptionalModule, Queues, TaskNames, parse_members, parse_names
from horsies.cli.watching import Every, Watch, refuse_watching, watch_until_interrupted
from horsies.core.monitoring.models.answers import to_jsonable
from horsies.core.monitoring.models.tasks import ErrorCategory, SortDir, TaskListPage, TaskSummary
from horsies.core.types.status import TASK_TERMINAL_STATES, TaskStatus
from horsies.monitoring import list_tasks

_TITLES = ("task", "status", "name", "queue", "sent", "ended", "took", "retries", "error", "worker")


class Sort(StrEnum):
    """The sort orders. Each has an index except `sent_at`, which reads all rows."""

    ID = "id"
    SENT_AT = "sent_at"
    CLAIM_ORDER = "claim_order"
    STARTED_AT = "started_at"
    ENDED_AT = "ended_at"


class Order(StrEnum):
    """The sort direction."""

    ASC = "asc"
    DESC = "desc"


# What an order is about, where nothing else is asked for.
_STATES_OF: dict[Sort, tuple[TaskStatus, ...]] = {
    Sort.ID: (),
    Sort.SENT_AT: (),
    Sort.CLAIM_ORDER: (TaskStatus.PENDING,),
    Sort.STARTED_AT: (TaskStatus.CLAIMED, TaskStatus.RUNNING),
    Sort.ENDED_AT: tuple(sorted(TASK_TERMINAL_STATES)),
}


def tasks(
    module: OptionalModule = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            "-s",
            metavar="STATES",
            help="Only tasks in these states, separated by commas.",
            autocompletion=members(TaskStatus),
        ),
    ] = None,
    queue: Queues = None,
    task: TaskNames = None,
    worker: Annotated[
        list[str] | None, typer.Option(metavar="IDS", help="Only tasks that these workers hold or held.")
    ] = None,
    error_code: Annotated[
        list[str] | None, typer.Option("--error-code", "-e", metavar="CODES", help="Only tasks with these error codes.")
    ] = None,
    error_category: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CATEGORIES",
            help="Only tasks with error codes of these families: operational, contract, retrieval, outcome, domain.",
            autocompletion=members(ErrorCategory),
        ),
    ] = None,
    retried: Annotated[bool, typer.Option("--retried", help="Only tasks that have been retried.")] = False,
    sort: Annotated[
        Sort,
        typer.Option(
            case_sensitive=False,
            help="sent_at: the order of sending (reads all matching tasks); id: nearly the same, except for tasks of "
            "schedules, and fast on a large table; claim_order: the next tasks of each queue (waiting tasks); "
            "started_at: claimed and running tasks; ended_at: ended tasks.",
        ),
    ] = Sort.SENT_AT,
    order: Annotated[
        Order | None,
        typer.Option(
            case_sensitive=False, help="The sort direction.", show_default="desc: the latest first; asc for claim_order"
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many.")] = 50,
    offset: Annotated[int, typer.Option(min=0, help="How many tasks to skip.")] = 0,
    only_ids: Annotated[bool, typer.Option("--ids", help="Print only the ids, one on each line.")] = False,
    watch: Watch = False,
    every: Every = "2s",  # type: ignore[assignment]  # read by the parser, like what is typed
    as_json: manual.AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """List tasks, the latest first.

    Separate several names by commas, or repeat the option. A task must match every option, and one of the names of
    each. Times are UTC.
    """
    refuse_watching(watch, as_json, only_ids)
    asked: dict[str, Any] = {
        "statuses": _statuses(parse_members(TaskStatus, status, "--status"), sort),
        "queues": parse_names(queue, "--queue") or (),
        "task_names": parse_names(task, "--task") or (),
        "workers": parse_names(worker, "--worker") or (),
        "error_codes": parse_names(error_code, "--error-code") or (),
        "error_categories": parse_members(ErrorCategory, error_category, "--error-category"),
        "retried_only": retried,
        "sort_by": sort.value,
        "sort_dir": _direction(sort, order),
        "offset": offset,
        "limit": limit,
    }
    with manual.looking(module, database_url) as app:

        def page() -> TaskListPage:
            return manual.answer_of(asyncio.run(list_tasks(app.get_broker(), **asked)), app)

        if watch:
            return watch_until_interrupted(lambda: _shown(page(), is_watched=True), every)
        return _print(page(), as_json=as_json, only_ids=only_ids)


def _statuses(given: tuple[TaskStatus, ...], sort: Sort) -> tuple[TaskStatus, ...]:
    """The states that a sort order allows, because its index covers only these."""
    sortable = _STATES_OF[sort]
    if sortable and not set(given) <= set(sortable):
        states = ", ".join(status.value for status in sortable)
        raise output.usage_error(f"--sort {sort.value} is an order of {states} only", "leave out --status or --sort")
    return given or sortable


def _direction(sort: Sort, order: Order | None) -> SortDir:
    if order is None:
        return "asc" if sort is Sort.CLAIM_ORDER else "desc"
    return "asc" if order is Order.ASC else "desc"


def _print(page: TaskListPage, *, as_json: bool, only_ids: bool) -> int:
    if as_json:
        manual.print_json(to_jsonable(page))
    elif only_ids:
        for one in page.items:
            output.write(one.task_id)
    else:
        manual.print_whole(_shown(page))
    return 0


def _shown(page: TaskListPage, *, is_watched: bool = False) -> RenderableType:
    if not page.items:
        return Text("no task matches" if page.total == 0 else f"there are only {page.total}")
    last = page.offset + len(page.items)
    rest = f"; --offset {last} shows what follows" if last < page.total else ""
    summary = Text(f"{page.offset + 1} to {last} of {manual.count(page.total, 'task')}{rest}")
    table = manual.table_of(_TITLES, [_row(one) for one in page.items])
    return Group(summary, table) if is_watched else Group(table, summary)  # the end of a screen may be out of sight


def _row(one: TaskSummary) -> list[Any]:
    took = None if one.started_at is None or one.ended_at is None else (one.ended_at - one.started_at).total_seconds()
    retries = f"{one.retry_count}/{one.max_retries}" if one.max_retries or one.retry_count else None
    return [
        one.task_id,
        Text(one.status.value, style=manual.STYLES[one.status]),
        one.task_name,
        one.queue_name,
        one.sent_at,
        one.ended_at,
        None if took is None else manual.seconds(took),
        retries,
        one.error_code,
        one.worker_id,
    ]
