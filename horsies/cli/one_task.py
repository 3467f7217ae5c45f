"""The commands about one task that change nothing. `horsies task` shows everything about it: its columns, its payload
and result, its attempts. `horsies explain` says why it is not running (M-45).
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from horsies.cli import notes, options, output, session, tables
from horsies.cli.tables import Column
from horsies.core.models.monitoring import cluster
from horsies.core.models.monitoring import tasks as models
from horsies.core.types import TaskStatus
from horsies.monitoring import explain_task, get_task_detail

USAGE = "horsies task shop.tasks:app 0198c5de-0001-7000-8000-000000000001"
EXPLAIN_USAGE = "horsies explain shop.tasks:app 0198c5de-0001-7000-8000-000000000001"
_PAYLOADS = ("args", "kwargs", "task_options", "result")
_SHORT = 100  # characters
MOST_SHOWN, MOST_LINES = 100_000, 1_000
_WAITING = (TaskStatus.PENDING, TaskStatus.CLAIMED)


def task(
    what: session.OneId,
    wide: options.Wide = False,
    as_json: options.AsJson = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Show one task: its state, its arguments, its result, and each of its attempts. Times are UTC."""
    with session.open_for_ids(session.only_one(what, database_url, USAGE), database_url, USAGE) as (app, [task_id]):
        found = session.answer_of(asyncio.run(get_task_detail(app.get_broker(), task_id)), app)
    if found is None:
        raise session.no_such_task(what, task_id, USAGE)
    if as_json:
        output.print_json(as_values(found))
    else:
        _show(found, tables.chosen(_ATTEMPTS, None, wide=wide))
    return 0


def as_values(found: models.TaskDetail) -> dict[str, Any]:
    """Values that are stored as JSON become JSON, not text inside JSON."""
    values: dict[str, Any] = models.to_jsonable(found)
    return values | {name: _value(values[name]) for name in _PAYLOADS}


def _value(text: str | None) -> Any:
    try:
        return None if text is None else output.with_plain_codes(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _show(found: models.TaskDetail, attempts: tables.Table) -> None:
    title = output.styled((f"{found.task_name}  ", "bold"), (found.status.value, output.style_of(found.status)))
    lines = {name: output.text_of(value) for name, value in facts_of(found) if value is not None}
    output.write_styled(title, *_aligned(lines))
    for name, text in blocks_of(found):
        output.write_styled(output.styled((f"  {name}", "dim")))
        output.write(*_indented(text))
    if found.attempts:
        output.print_rows(attempts, found.attempts)
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


def facts_of(found: models.TaskDetail) -> Iterator[tuple[str, Any]]:
    """What there is to say about a task in one line each; None where there is nothing."""
    yield "task", found.task_id
    yield "queue", f"{found.queue_name} (priority {found.priority})"
    yield "workflow", found.workflow_id
    yield "idempotency key", found.idempotency_key
    yield "flags", json.dumps(models.to_jsonable(found.flags)) if found.flags else None
    yield "sent", found.sent_at
    yield "sent from SQL by", found.sent_by
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


def blocks_of(found: models.TaskDetail) -> Iterator[tuple[str, str]]:
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


_ATTEMPTS = (
    Column("attempt", lambda one: one.attempt),
    Column("outcome", lambda one: one.outcome.value),
    Column("finished", lambda one: one.finished_at, leaves=1),
    Column("took", lambda one: output.between(one.started_at, one.finished_at), leaves=2),
    Column("retried", lambda one: "yes" if one.will_retry else "no", leaves=3),
    Column("error", lambda one: one.error_code, folds=True),
    Column("message", lambda one: one.error_message and " ".join(one.error_message.split()), folds=True),
    Column("worker", lambda one: one.worker_id, leaves=4),
)


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
    known = facts_of_explanation(found)
    lines = {name: output.text_of(value) for name, value in known.items() if name and value not in (None, "")}
    advice = [output.styled((f"  {sentence}", "default")) for sentence in found.remedies]
    output.write_styled(title, *advice, *_aligned(lines))


def facts_of_explanation(found: cluster.Explanation) -> dict[str, Any]:
    """The facts behind an explanation, by the words for them."""
    return {
        "status": found.status and found.status.value,
        "queue": found.queue,
        "worker": found.worker_id,
        "since": found.since,
        "until": found.until,
        **{_WORDS.get(name, name.replace("_", " ")): _plain(value) for name, value in found.facts.items()},
        "tasks": output.some(found.tasks) or None,
        "nodes": output.some(found.nodes) or None,
    }


# What the facts of an explanation are called here. Those without a word are in its message already.
_WORDS = {
    "asked_at": "asked",
    "task_name": "name",
    "enqueued_at": "due",
    "good_until": "deadline",
    "retry_count": "retries",
    "max_retries": "most retries",
    "workflow_name": "workflow",
    "workflow_status": "workflow status",
    "worker_heard_at": "worker's heartbeat",
    "last_beat_at": "task's heartbeat",
    "serving_workers": "workers of queue",
    "serving_queue": "their ids",
    "knowing_workers": "workers with task",
    "known_by": "ids of these",
    "known_in": "queues of these",
    "fails_at": "fails",
    "last_error": "last error",
    "last_error_at": "at",
    "paused_by": "paused by",
    "failed_node": "failed node",
    "failed_code": "its error",
    "holders": "",
    "running": "running in queue",
    "in_flight": "in flight in queue",
    "in_flight_in_all": "in flight in all",
    "due_before": "due before it",
    "is_only_a_part": "",
    "max_concurrency": "limit of queue",
    "cluster_wide_cap": "limit of cluster",
    "deps_total": "waits for nodes",
    "deps_completed": "of these completed",
    "deps_failed": "of these failed",
    "deps_skipped": "of these skipped",
}


def _plain(value: Any) -> Any:
    """Texts, numbers and times unchanged, lists of texts as words, everything else as JSON."""
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return output.some(value) or None
    if isinstance(value, list | tuple | dict):
        return json.dumps(models.to_jsonable(value), ensure_ascii=False) if value else None
    return value
