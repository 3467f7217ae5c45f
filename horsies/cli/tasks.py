"""The lists of tasks. `horsies tasks` lists them, filtered, sorted, page by page (M-45, M-46). `horsies stale-tasks`
lists running tasks without a recent heartbeat (M-10, R-91). The commands about one task are in `one_task.py`.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from operator import itemgetter
from typing import Annotated, Any

import typer

from horsies.cli import notes, options, output, session, tables
from horsies.cli.tables import Column
from horsies.core.models.monitoring import tasks as models
from horsies.core.monitoring import filters
from horsies.core.types import TASK_TERMINAL_STATES, TaskStatus
from horsies.monitoring import list_tasks


class Sort(StrEnum):
    """The sort orders. Each has an index except `sent_at`."""

    ID = "id"
    SENT_AT = "sent_at"
    CLAIM_ORDER = "claim_order"
    STARTED_AT = "started_at"
    ENDED_AT = "ended_at"


class Order(StrEnum):
    """The sort direction."""

    ASC = "asc"
    DESC = "desc"


# The states that a sort order lists if the person names none.
_STATES_OF: dict[Sort, tuple[TaskStatus, ...]] = {
    Sort.ID: (),
    Sort.SENT_AT: (),
    Sort.CLAIM_ORDER: (TaskStatus.PENDING,),
    Sort.STARTED_AT: (TaskStatus.CLAIMED, TaskStatus.RUNNING),
    Sort.ENDED_AT: tuple(sorted(TASK_TERMINAL_STATES)),
}


def tasks(
    module: options.OptionalModule = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            "-s",
            metavar="STATES",
            help="Only tasks in these states, separated by commas.",
            autocompletion=options.members(TaskStatus),
        ),
    ] = None,
    queue: options.Queues = None,
    task: options.TaskNames = None,
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
            autocompletion=options.members(models.ErrorCategory),
        ),
    ] = None,
    retried: Annotated[bool, typer.Option("--retried", help="Only tasks that have been retried.")] = False,
    newer_than: Annotated[
        timedelta | None,
        typer.Option(parser=options.parse_age, metavar="D", help="Only tasks sent within this time: 30m, 6h, 7d."),
    ] = None,
    older_than: Annotated[
        timedelta | None,
        typer.Option(parser=options.parse_age, metavar="D", help="Only tasks sent longer ago than this."),
    ] = None,
    id_prefix: Annotated[str | None, typer.Option(metavar="TEXT", help="Only tasks whose ids begin like this.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only tasks with this idempotency key.")] = None,
    sort: Annotated[
        Sort | None,
        typer.Option(
            case_sensitive=False,
            help="sent_at: the order of sending (of more than 10,000 tasks: among the newest by id, the last ended, "
            "and those in flight); id: nearly the same, tasks of schedules by slot; claim_order: the next tasks of "
            "each queue (waiting tasks); started_at: claimed and running tasks; ended_at: ended tasks.",
            show_default="sent_at; ended_at if --status names only ended states",
        ),
    ] = None,
    order: Annotated[
        Order | None,
        typer.Option(
            case_sensitive=False, help="The sort direction.", show_default="desc: the latest first; asc for claim_order"
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many.")] = 50,
    offset: Annotated[int, typer.Option(min=0, max=filters.DEEPEST_OFFSET, help="How many tasks to skip.")] = 0,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Continue where a list ended; it says with which cursor.")
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact", help="Search and count all tasks, however long it takes (up to five minutes), not only some."
        ),
    ] = False,
    only_ids: Annotated[bool, typer.Option("--ids", help="Print only the ids, one on each line.")] = False,
    wide: options.Wide = False,
    columns: options.Columns = None,
    watch: options.Watch = False,
    every: options.Every = "2s",  # type: ignore[assignment]  # read by the parser, like what is typed
    as_json: options.AsJson = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """List tasks, the latest first.

    Separate several names by commas, or repeat the option. A task must match every option, and one of the names of
    each. Times are UTC. A search ends after 10,000 tasks, and says so; a total stops at 10,000.
    """
    output.refuse_watching(watch, as_json, only_ids)
    table = tables.chosen(_COLUMNS, columns, wide=wide, is_table=not (as_json or only_ids))
    statuses = options.parse_members(TaskStatus, status, "--status")
    sort = sort or (Sort.ENDED_AT if statuses and TASK_TERMINAL_STATES.issuperset(statuses) else Sort.SENT_AT)
    asked: dict[str, Any] = {
        "statuses": _statuses(statuses, sort),
        "queues": options.parse_names(queue, "--queue") or (),
        "task_names": options.parse_names(task, "--task") or (),
        "workers": options.parse_names(worker, "--worker") or (),
        "error_codes": options.parse_names(error_code, "--error-code") or (),
        "error_categories": options.parse_members(models.ErrorCategory, error_category, "--error-category"),
        "retried_only": retried,
        "sent_after": _ago(newer_than),
        "sent_before": _ago(older_than),
        "id_prefix": id_prefix,
        "idempotency_key": key,
        "sort_by": sort.value,
        "sort_dir": _direction(sort, order),
        "offset": offset,
        "limit": limit,
        "after": after,
        "exact": exact,
    }
    with session.open_read_only(module, database_url) as app:

        def page() -> models.TaskListPage:
            return session.answer_of(asyncio.run(list_tasks(app.get_broker(), **asked)), app)

        if watch:
            return output.watch_until_interrupted(lambda: _watched(page(), table), every)
        return _print(page(), table, as_json=as_json, only_ids=only_ids)


def _ago(age: timedelta | None) -> datetime | None:
    return None if age is None else datetime.now(UTC) - age


def _statuses(given: tuple[TaskStatus, ...], sort: Sort) -> tuple[TaskStatus, ...]:
    """The states that a sort order allows, because its index covers only these."""
    sortable = _STATES_OF[sort]
    if sortable and not set(given) <= set(sortable):
        states = ", ".join(status.value for status in sortable)
        raise output.usage_error(f"--sort {sort.value} is an order of {states} only", "leave out --status or --sort")
    return given or sortable


def _direction(sort: Sort, order: Order | None) -> models.SortDir:
    if order is None:
        return "asc" if sort is Sort.CLAIM_ORDER else "desc"
    return "asc" if order is Order.ASC else "desc"


def _print(page: models.TaskListPage, table: tables.Table, *, as_json: bool, only_ids: bool) -> int:
    if as_json:
        output.print_json(models.to_jsonable(page))
    elif only_ids:
        output.write(*(one.task_id for one in page.items))
    elif page.items:
        output.print_rows(_table(page, table), page.items)
        output.write(_summary(page))
    else:
        output.write(_nothing(page))
    return 0


def _watched(page: models.TaskListPage, table: tables.Table) -> "output.Shown":
    if not page.items:
        return output.styled((_nothing(page), "default"))
    rows = output.table_of(_table(page, table), page.items)[0]
    return output.below_each_other(output.styled((_summary(page), "default")), rows)  # a long table hides what is below


def _summary(page: models.TaskListPage) -> str:
    last = page.offset + len(page.items)
    total = output.count(page.total, "task") if page.total_is_exact else f"{page.total:,}+ tasks"
    return f"{page.offset + 1} to {last} of {total}{_rest(page, last)}"


def _table(page: models.TaskListPage, table: tables.Table) -> tables.Table:
    """With their progress, if there is one that has any."""
    return table if any(one.progress for one in page.items) else table.without("progress")


def _nothing(page: models.TaskListPage) -> str:
    if page.is_partial:
        return f"no task matches among those that were looked at{_further(page)}"
    if page.total == 0 and page.total_is_exact:
        return "no task matches"
    return f"there are only {page.total}" if page.total_is_exact else "nothing follows"


def _rest(page: models.TaskListPage, last: int) -> str:
    if page.is_partial:
        return f"; not all tasks were looked at{_further(page)}"
    if page.next_cursor is None:
        return ""
    if last <= filters.DEEPEST_OFFSET:
        return f"; --offset {last} shows what follows"
    return f"; --after {page.next_cursor} shows what follows"


def _further(page: models.TaskListPage) -> str:
    way = "--exact" if page.next_cursor is None else f"--after {page.next_cursor}"
    return f": {way} looks further"


def _retries(one: models.TaskSummary) -> str | None:
    return f"{one.retry_count}/{one.max_retries}" if one.max_retries or one.retry_count else None


_COLUMNS = (
    Column("task", lambda one: one.task_id),
    Column("status", lambda one: output.styled((one.status.value, output.style_of(one.status)))),
    Column("progress", lambda one: notes.short(one.progress), leaves=2),
    Column("name", lambda one: one.task_name, folds=True),
    Column("queue", lambda one: one.queue_name, leaves=3),
    Column("sent", lambda one: one.sent_at, leaves=1),
    Column("ended", lambda one: one.ended_at, leaves=5),
    Column("took", lambda one: output.between(one.started_at, one.ended_at), leaves=4),
    Column("retries", _retries, leaves=6),
    Column("error", lambda one: one.error_code, folds=True),
    Column("worker", lambda one: one.worker_id, leaves=7),
    Column("priority", lambda one: one.priority, extra=True),
    Column("due", lambda one: one.next_retry_at or one.enqueued_at, extra=True),
    Column("deadline", lambda one: one.good_until, extra=True),
    Column("claimed", lambda one: one.claimed_at, extra=True),
    Column("started", lambda one: one.started_at, extra=True),
    Column("workflow", lambda one: one.workflow_id, extra=True),
)


def stale_tasks(
    module: options.OptionalModule = None,
    minutes: Annotated[
        float, typer.Option(min=0, max=525_600, help="Only tasks without a heartbeat for more than this many minutes.")
    ] = 2,
    wide: options.Wide = False,
    columns: options.Columns = None,
    as_json: options.AsJson = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """List running tasks whose heartbeats have stopped: recovery would treat them as dead at this threshold."""
    table = tables.chosen(_STALE, columns, wide=wide, is_table=not as_json)
    with session.open_read_only(module, database_url) as app:
        asked = app.get_broker().get_stale_tasks_sync(stale_threshold_minutes=minutes)
        found = session.value_of(asked, app)
    if as_json:
        output.print_json(found)
    elif found:
        output.print_rows(table, found)
    else:
        output.write(f"no running task has been silent for more than {minutes:g} min")
    return 0


_STALE = (
    Column("task", itemgetter("id")),
    Column("name", itemgetter("task_name"), folds=True),
    Column("host", itemgetter("worker_hostname"), leaves=3),
    Column("pid", itemgetter("worker_pid"), leaves=4),
    Column("process", itemgetter("worker_process_name"), leaves=2),
    Column("last heartbeat", itemgetter("last_heartbeat")),
    Column("started", itemgetter("started_at"), leaves=1),
)
