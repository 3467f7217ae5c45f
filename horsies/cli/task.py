"""`horsies task`: everything about one task: its columns, its payload and result, its attempts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from horsies.cli import manual, output
from horsies.cli.ids import OneId, no_such_task, only_one, opened_for
from horsies.cli.options import DatabaseUrl
from horsies.core.models.tasks import TaskAttemptInfo
from horsies.core.monitoring.models.answers import to_jsonable
from horsies.core.monitoring.models.tasks import TaskDetail
from horsies.core.types.status import TaskStatus
from horsies.monitoring import get_task_detail

USAGE = "horsies task shop.tasks:app 0198c5de-0001-7000-8000-000000000001"
_PAYLOADS = ("args", "kwargs", "task_options", "result")
_SHORT = 100  # characters
MOST_SHOWN, MOST_LINES = 100_000, 1_000
_WAITING = (TaskStatus.PENDING, TaskStatus.CLAIMED)


def task(what: OneId, as_json: manual.AsJson = False, database_url: DatabaseUrl = None) -> int:
    """Show one task: its state, its arguments, its result, and each of its attempts. Times are UTC."""
    with opened_for(only_one(what, database_url, USAGE), database_url, USAGE) as (app, [task_id]):
        found = manual.answer_of(asyncio.run(get_task_detail(app.get_broker(), task_id)), app)
    if found is None:
        raise no_such_task(what, task_id, USAGE)
    if as_json:
        manual.print_json(as_values(found))
    else:
        _show(found)
    return 0


def as_values(found: TaskDetail) -> dict[str, Any]:
    """Values that are stored as JSON become JSON, not text inside JSON."""
    values: dict[str, Any] = to_jsonable(found)
    return values | {name: _value(values[name]) for name in _PAYLOADS}


def _value(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text


def _show(found: TaskDetail) -> None:
    console = output.out()
    title = Text(f"{manual.printable(found.task_name)}  ", style="bold")
    title.append(found.status.value, style=manual.STYLES[found.status])
    console.print(title)
    lines = [(name, manual.text_of(value)) for name, value in _lines(found) if value is not None]
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        console.print(Text(f"  {name:<{width}}  ", style="dim").append(value, style="default"))
    for name, text in _blocks(found):
        console.print(Text(f"  {name}", style="dim"))
        console.print(Text(_indented(text)))
    if found.attempts:
        titles = ["attempt", "outcome", "finished", "took", "retried", "error", "message", "worker"]
        manual.print_table(titles, [_attempt(one) for one in found.attempts])
    if found.status in _WAITING:
        output.say(f"horsies explain {found.task_id} says what it waits for")


def _indented(text: str) -> str:
    """As much of the text as a person reads; --json shows all of it."""
    lines = text[:MOST_SHOWN].splitlines()[:MOST_LINES]
    shown = [f"    {manual.printable(line)}" for line in lines]
    left = len(text) - sum(len(line) + 1 for line in lines)
    return "\n".join([*shown, f"    … and {left:,} more characters: --json shows all"] if left > 0 else shown)


def _lines(found: TaskDetail) -> Iterator[tuple[str, Any]]:
    yield "task", found.task_id
    yield "queue", f"{found.queue_name} (priority {found.priority})"
    yield "workflow", found.workflow_id
    yield "idempotency key", found.idempotency_key
    yield "flags", json.dumps(to_jsonable(found.flags)) if found.flags else None
    yield "sent", found.sent_at
    yield "due", found.enqueued_at if found.status is TaskStatus.PENDING else None
    yield "next retry", found.next_retry_at if found.status is TaskStatus.PENDING else None
    yield "deadline", found.good_until
    yield "claimed", found.claimed_at
    yield "started", found.started_at
    yield "ended", found.ended_at
    yield "retries", f"{found.retry_count} of {found.max_retries}" if found.max_retries or found.retry_count else None
    yield "error", found.error_code and f"{found.error_code} ({found.error_category})"
    yield "worker", found.claimed_by_worker_id
    yield "child", found.worker_process_name and f"{found.worker_process_name} (pid {found.worker_pid})"


def _blocks(found: TaskDetail) -> Iterator[tuple[str, str]]:
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
        took = manual.seconds((one.finished_at - one.started_at).total_seconds())
    message = None if one.error_message is None else " ".join(one.error_message.split())
    retried = "yes" if one.will_retry else "no"
    return [one.attempt, one.outcome.value, one.finished_at, took, retried, one.error_code, message, one.worker_id]
