"""A typed function per statement that writes new tasks, or looks for the ones that were already there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from horsies.core.models.tasks import TaskOptions, TaskSendPayload
from horsies.core.sql import load


class Send(NamedTuple):
    """A payload and the id its row shall have."""

    task_id: str
    payload: TaskSendPayload


class Stored(NamedTuple):
    """The row that stood in the way of the send at `place`."""

    place: int
    same_id: bool
    task_id: str
    enqueue_sha: str | None
    queue_name: str
    priority: int
    args: str | None
    kwargs: str | None
    task_options: str | None
    flags: str


async def insert(conn: AsyncConnection[Any], sends: Sequence[Send]) -> set[str]:
    """Write the tasks; return the ids that were written. The others met a row that is already there."""
    payloads = [send.payload for send in sends]
    columns = {
        "ids": [send.task_id for send in sends],
        "task_names": [p.task_name for p in payloads],
        "queue_names": [p.queue_name for p in payloads],
        "priorities": [p.priority for p in payloads],
        "args": [p.args_json for p in payloads],
        "kwargs": [p.kwargs_json for p in payloads],
        "sent_at": [p.sent_at for p in payloads],
        "waits": _waits(payloads),
        "good_until": [p.good_until for p in payloads],
        "max_retries": [TaskOptions.from_json(p.task_options).max_retries for p in payloads],
        "task_options": [p.task_options for p in payloads],
        "shas": [p.enqueue_sha for p in payloads],
        "flags": [p.flags_json for p in payloads],
        "keys": [p.idempotency_key for p in payloads],
    }
    cursor = await conn.execute(load("tasks/insert"), columns, prepare=True)
    return {row[0] for row in await cursor.fetchall()}


async def find(conn: AsyncConnection[Any], sends: Sequence[Send]) -> list[Stored]:
    """The rows that have the id or the idempotency key of these sends."""
    columns = {
        "ids": [send.task_id for send in sends],
        "task_names": [send.payload.task_name for send in sends],
        "keys": [send.payload.idempotency_key for send in sends],
    }
    cursor = await conn.execute(load("tasks/find_sent"), columns)
    return [Stored(*row) for row in await cursor.fetchall()]


def _waits(payloads: Sequence[TaskSendPayload]) -> list[float]:
    """Seconds from the database's now until each is due: its delay less the age of the call, by the caller's clock."""
    now = datetime.now(UTC)
    return [float(p.enqueue_delay_seconds or 0) - max(0.0, (now - p.sent_at).total_seconds()) for p in payloads]
