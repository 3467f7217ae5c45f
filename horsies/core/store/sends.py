"""The statements that write new tasks, find existing ones, or send an ended task again.

Inserts are made here and run elsewhere, because they may go over our own connection or over one of the caller's:
blocking or not, psycopg's or SQLAlchemy's. Rows are sent as one JSON text, which every kind of connection can carry.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from pydantic_core import to_json

from horsies.core.db import Connection
from horsies.core.models import sending, tasks
from horsies.core.sql import load


class Send(NamedTuple):
    """A payload, the id of its row, and its trace, which is not part of the request."""

    task_id: str
    payload: tasks.TaskSendPayload
    trace: str | None = None


class ConflictingRow(NamedTuple):
    """The row that conflicts with the send at `place`: it has the same id, and perhaps the same payload, or the same
    idempotency key, and perhaps another request."""

    place: int
    same_id: bool
    task_id: str
    same_payload: bool
    differing: str | None  # parts of the request, with commas; deadline, delay and time of the call do not count


class Statement(NamedTuple):
    """A text and its parameters; without parameters it is a command that returns no rows."""

    text: str
    params: dict[str, Any] | None = None


Rows: TypeAlias = Sequence[Any]


def insert(sends: Iterable[Send], now: datetime) -> Statement:
    """Write the tasks; the returned rows have the ids that were written. The other sends conflict with existing rows.
    `now` is the time by the caller's clock, from which the age of each call follows."""
    return Statement(load("tasks/insert"), {"rows": to_json([_row(send, now) for send in sends]).decode()})


def find(sends: Iterable[Send]) -> Statement:
    """The rows (`ConflictingRow`) that have the id or the idempotency key of these sends."""
    wanted = [_request(place, task_id, payload) for place, (task_id, payload, _) in enumerate(sends)]
    return Statement(load("tasks/find_sent"), {"rows": to_json(wanted).decode()})


def _request(place: int, task_id: str, payload: tasks.TaskSendPayload) -> dict[str, Any]:
    return {
        "place": place,
        "id": task_id,
        "task_name": payload.task_name,
        "idempotency_key": payload.idempotency_key,
        "sent_sha": payload.enqueue_sha,
        "sent_queue": payload.queue_name,
        "sent_priority": payload.priority,
        "sent_args": payload.args_json,
        "sent_kwargs": payload.kwargs_json,
        "sent_options": payload.task_options,
        "sent_flags": payload.flags_json,
    }


def _row(send: Send, now: datetime) -> dict[str, Any]:
    payload = send.payload
    return {
        "id": send.task_id,
        "task_name": payload.task_name,
        "queue_name": payload.queue_name,
        "priority": payload.priority,
        "args": payload.args_json,
        "kwargs": payload.kwargs_json,
        "sent_at": payload.sent_at.isoformat(),
        "wait": _wait(payload, now),
        "good_until": payload.good_until and payload.good_until.isoformat(),
        "max_retries": tasks.TaskOptions.from_json(payload.task_options).max_retries,
        "task_options": sending.with_trace(payload.task_options, send.trace),
        "enqueue_sha": payload.enqueue_sha,
        "flags": payload.flags_json,
        "idempotency_key": payload.idempotency_key,
    }


def _wait(payload: tasks.TaskSendPayload, now: datetime) -> float:
    """Seconds until it is due: its delay minus the age of the call."""
    return float(payload.enqueue_delay_seconds or 0) - max(0.0, (now - payload.sent_at).total_seconds())


async def rerun(conn: Connection, task_id: str, new_id: str) -> bool:
    """Copy a task that ended without success; False if it did not end like that, or belongs to a workflow."""
    cursor = await conn.execute(load("monitoring/rerun"), {"task_id": task_id, "new_id": new_id}, prepare=False)
    return await cursor.fetchone() is not None


async def why_not_rerun(conn: Connection, task_id: str) -> tuple[Any, ...] | None:
    """The state of a task and the workflow it belongs to."""
    return await (await conn.execute(load("tasks/why_not_cancelled"), {"task_id": task_id})).fetchone()
