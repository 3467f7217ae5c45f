"""The commands that read tasks and change nothing. `horsies tasks` lists them, filtered, sorted, page by page (M-45,
M-46). `horsies task` shows everything about one: its columns, its payload and result, its attempts. `horsies explain`
says why one is not running. `horsies stale-tasks` lists running tasks without a recent heartbeat (M-10, R-91).
"""

import asyncio
import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer

from horsies.cli import notes, options, output, session
from horsies.core.models.monitoring import cluster
from horsies.core.models.monitoring import tasks as models
from horsies.core.models.tasks import TaskAttemptInfo
from horsies.core.monitoring import filters
from horsies.core.types import TASK_TERMINAL_STATES, TaskStatus
from horsies.monitoring import explain_task, get_task_detail, list_tasks

_TITLES = ("task", "status", "name", "queue", "sent", "ended", "took", "retries", "error", "worker")
_PROGRESS_AT = 2  # the place of the progress among them

_STALE_TITLES = {
    "id": "task",
    "task_name": "name",
    "worker_hostname": "host",
    "worker_pid": "pid",
    "worker_process_name": "process",
    "last_heartbeat": "last heartbeat",
    "started_at": "started",
}

USAGE = "horsies task shop.tasks:app 0198c5de-0001-7000-8000-000000000001"
EXPLAIN_USAGE = "horsies explain shop.tasks:app 0198c5de-0001-7000-8000-000000000001"
_PAYLOADS = ("args", "kwargs", "task_options", "result")
_SHORT = 100  # characters
MOST_SHOWN, MOST_LINES = 100_000, 1_000
_WAITING = (TaskStatus.PENDING, TaskStatus.CLAIMED)


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
    sort: Annotated[
        Sort | None,
        typer.Option(
            case_sensitive=False,
            help="sent_at: the order of sending (of more than 10,000 tasks: among the newest by id, the last ended, "
            "and those in flight); id: nearly the same, except for tasks of schedules; claim_order: the next tasks of "
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
            return output.watch_until_interrupted(lambda: _shown(page(), is_watched=True), every)
        return _print(page(), as_json=as_json, only_ids=only_ids)


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


def _print(page: models.TaskListPage, *, as_json: bool, only_ids: bool) -> int:
    if as_json:
        output.print_json(models.to_jsonable(page))
    elif only_ids:
        output.write(*(one.task_id for one in page.items))
    else:
        output.print_whole(_shown(page))
    return 0


def _shown(page: models.TaskListPage, *, is_watched: bool = False) -> "output.Shown":
    if not page.items:
        return output.styled((_nothing(page), "default"))
    last = page.offset + len(page.items)
    total = output.count(page.total, "task") if page.total_is_exact else f"{page.total:,}+ tasks"
    summary = output.styled((f"{page.offset + 1} to {last} of {total}{_rest(page, last)}", "default"))
    table = _table(page)
    parts = (summary, table) if is_watched else (table, summary)  # a long table hides what is below it
    return output.below_each_other(*parts)


def _table(page: models.TaskListPage) -> "output.Shown":
    """With their progress, if there is one that has any."""
    rows = [_row(one) for one in page.items]
    if not any(one.progress for one in page.items):
        return output.table_of(_TITLES, rows)
    said = [notes.short(one.progress) for one in page.items]
    titles = [*_TITLES[:_PROGRESS_AT], "progress", *_TITLES[_PROGRESS_AT:]]
    return output.table_of(
        titles, [[*row[:_PROGRESS_AT], cell, *row[_PROGRESS_AT:]] for row, cell in zip(rows, said, strict=True)]
    )


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


def _row(one: models.TaskSummary) -> list[Any]:
    took = None if one.started_at is None or one.ended_at is None else (one.ended_at - one.started_at).total_seconds()
    retries = f"{one.retry_count}/{one.max_retries}" if one.max_retries or one.retry_count else None
    return [
        one.task_id,
        output.styled((one.status.value, output.style_of(one.status))),
        one.task_name,
        one.queue_name,
        one.sent_at,
        one.ended_at,
        None if took is None else output.seconds(took),
        retries,
        one.error_code,
        one.worker_id,
    ]


def task(what: session.OneId, as_json: options.AsJson = False, database_url: options.DatabaseUrl = None) -> int:
    """Show one task: its state, its arguments, its result, and each of its attempts. Times are UTC."""
    with session.open_for_ids(session.only_one(what, database_url, USAGE), database_url, USAGE) as (app, [task_id]):
        found = session.answer_of(asyncio.run(get_task_detail(app.get_broker(), task_id)), app)
    if found is None:
        raise session.no_such_task(what, task_id, USAGE)
    if as_json:
        output.print_json(as_values(found))
    else:
        _show(found)
    return 0


def as_values(found: models.TaskDetail) -> dict[str, Any]:
    """Values that are stored as JSON become JSON, not text inside JSON."""
    values: dict[str, Any] = models.to_jsonable(found)
    return values | {name: _value(values[name]) for name in _PAYLOADS}


def _value(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text


def _show(found: models.TaskDetail) -> None:
    title = output.styled((f"{found.task_name}  ", "bold"), (found.status.value, output.style_of(found.status)))
    lines = {name: output.text_of(value) for name, value in _lines(found) if value is not None}
    output.write_styled(title, *_aligned(lines))
    for name, text in _blocks(found):
        output.write_styled(output.styled((f"  {name}", "dim")))
        output.write(*_indented(text))
    if found.attempts:
        titles = ["attempt", "outcome", "finished", "took", "retried", "error", "message", "worker"]
        output.print_table(titles, [_attempt(one) for one in found.attempts])
    if found.status in _WAITING:
        output.say(f"horsies explain {found.task_id} says what it waits for")


def _aligned(lines: dict[str, str]) -> "list[output.Line]":
    """Lines of a name and a value."""
    width = max(map(len, lines), default=0)
    return [output.styled((f"  {name:<{width}}  ", "dim"), (value, "default")) for name, value in lines.items()]


def _indented(text: str) -> list[str]:
    """As much of the text as a person reads; --json shows all of it."""
    lines = text.rstrip("\n")[:MOST_SHOWN].split("\n")[:MOST_LINES]
    shown = [f"    {line.expandtabs()}" for line in lines]
    left = len(text) - sum(len(line) + 1 for line in lines)
    return [*shown, f"    … and {left:,} more characters: --json shows all"] if left > 0 else shown


def _lines(found: models.TaskDetail) -> Iterator[tuple[str, Any]]:
    yield "task", found.task_id
    yield "queue", f"{found.queue_name} (priority {found.priority})"
    yield "workflow", found.workflow_id
    yield "idempotency key", found.idempotency_key
    yield "flags", json.dumps(models.to_jsonable(found.flags)) if found.flags else None
    yield "sent", found.sent_at
    yield "due", found.enqueued_at if found.status is TaskStatus.PENDING else None
    yield "next retry", found.next_retry_at if found.status is TaskStatus.PENDING else None
    yield "deadline", found.good_until
    yield "claimed", found.claimed_at
    yield "started", found.started_at
    yield "ended", found.ended_at
    is_running = found.status is TaskStatus.RUNNING
    yield "progress", found.progress and notes.bar(found.progress, is_running=is_running)
    yield "retries", f"{found.retry_count} of {found.max_retries}" if found.max_retries or found.retry_count else None
    yield "error", found.error_code and f"{found.error_code} ({found.error_category})"
    yield "worker", found.claimed_by_worker_id
    yield "child", found.worker_process_name and f"{found.worker_process_name} (pid {found.worker_pid})"


def _blocks(found: models.TaskDetail) -> Iterator[tuple[str, str]]:
    """The parts that may be long."""
    for name in ("args", "kwargs", "task_options"):
        if (value := _value(getattr(found, name))) not in (None, [], {}):
            yield name.replace("_", " "), _pretty(value)
    result = _value(found.result)
    error = result.get("err") if isinstance(result, dict) else None
    if isinstance(error, dict):
        yield from _parts_of_error(error)
    elif found.result is not None:
        yield "result", _pretty(result.get("ok") if isinstance(result, dict) and "ok" in result else result)
    if found.failed_reason:
        yield "failed reason", found.failed_reason


def _parts_of_error(error: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Show a traceback as lines, not as a JSON text."""
    if message := error.get("message"):
        yield "message", str(message)
    if (data := error.get("data")) is not None:
        yield "data", _pretty(data)
    exception = error.get("exception")
    if isinstance(exception, dict) and exception.get("traceback"):
        yield "traceback", str(exception["traceback"])


def _pretty(value: Any) -> str:
    """On one line if it fits."""
    short = json.dumps(value, ensure_ascii=False)
    return short if len(short) <= _SHORT else json.dumps(value, indent=2, ensure_ascii=False)


def _attempt(one: TaskAttemptInfo) -> list[Any]:
    took = None
    if one.started_at is not None and one.finished_at is not None:
        took = output.seconds((one.finished_at - one.started_at).total_seconds())
    message = None if one.error_message is None else " ".join(one.error_message.split())
    retried = "yes" if one.will_retry else "no"
    return [one.attempt, one.outcome.value, one.finished_at, took, retried, one.error_code, message, one.worker_id]


def explain(what: session.OneId, as_json: options.AsJson = False, database_url: options.DatabaseUrl = None) -> int:
    """Explain why a task is not running, or what became of it, with the facts behind the answer.

    A workflow node that has no task yet is named by the id of the workflow and the index of the node: ID:3.
    """
    with session.open_for_ids(session.only_one(what, database_url, EXPLAIN_USAGE), database_url, EXPLAIN_USAGE) as (
        app,
        [subject],
    ):
        found = session.answer_of(asyncio.run(explain_task(app.get_broker(), subject)), app)
    if found is None:
        raise session.no_such_task(what, subject, EXPLAIN_USAGE)
    if as_json:
        output.print_json(models.to_jsonable(found))
    else:
        _show_explanation(found)
    return 0


def _show_explanation(found: cluster.Explanation) -> None:
    title = output.styled((found.why.value, "bold"), (f"  {found.message}", "default"))
    known: dict[str, Any] = {
        "status": found.status and found.status.value,
        "queue": found.queue,
        "worker": found.worker_id,
        "since": found.since,
        "until": found.until,
        **{str(name).replace("_", " "): _plain(value) for name, value in found.facts.items()},
        "tasks": output.some(found.tasks) or None,
        "nodes": output.some(found.nodes) or None,
    }
    lines = {name: output.text_of(value) for name, value in known.items() if value not in (None, "")}
    output.write_styled(title, *_aligned(lines))


def _plain(value: Any) -> Any:
    """Texts, numbers and times unchanged, everything else as JSON."""
    if isinstance(value, list | tuple | dict):
        return json.dumps(models.to_jsonable(value), ensure_ascii=False) if value else None
    return value


def stale_tasks(
    module: options.OptionalModule = None,
    minutes: Annotated[
        float, typer.Option(min=0, max=525_600, help="Only tasks without a heartbeat for more than this many minutes.")
    ] = 2,
    as_json: options.AsJson = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """List running tasks whose heartbeats have stopped: recovery would treat them as dead at this threshold."""
    with session.open_read_only(module, database_url) as app:
        asked = app.get_broker().get_stale_tasks_sync(stale_threshold_minutes=minutes)
        found = session.value_of(asked, app)
    if as_json:
        output.print_json(found)
    elif found:
        output.print_table(list(_STALE_TITLES.values()), [[row[name] for name in _STALE_TITLES] for row in found])
    else:
        output.write(f"no running task has been silent for more than {minutes:g} min")
    return 0
