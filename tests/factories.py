"""Rows in any state, written with plain SQL: a test says what is there, not how it came to be."""

from __future__ import annotations

import uuid
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.types.json import Jsonb

from horsies.core.types.status import TaskStatus


async def given_task(db: AsyncConnection[Any], *, status: TaskStatus = TaskStatus.PENDING, **columns: Any) -> str:
    """A row of horsies_tasks; returns its id. Claimed and running ones belong to worker `w1` unless told otherwise."""
    values: dict[str, Any] = {"id": str(uuid.uuid4()), "task_name": "a_task", "status": status.value}
    if status in (TaskStatus.CLAIMED, TaskStatus.RUNNING):
        values |= {"claimed": True, "claimed_by_worker_id": "w1", "claim_seq": 1}
    values |= columns
    await _insert(db, "horsies_tasks", values)
    return str(values["id"])


async def given_attempt(db: AsyncConnection[Any], task_id: str, **columns: Any) -> None:
    """A row of horsies_task_attempts."""
    await _insert(
        db,
        "horsies_task_attempts",
        {"task_id": task_id, "attempt": 1, "outcome": "FAILED", "will_retry": False}
        | {"started_at": "now", "finished_at": "now"}
        | columns,
    )


async def given_heartbeat(db: AsyncConnection[Any], task_id: str, role: str, **columns: Any) -> None:
    """A row of horsies_heartbeats, sent just now unless told otherwise."""
    await _insert(db, "horsies_heartbeats", {"task_id": task_id, "sender_id": "s", "role": role} | columns)


async def given_worker(db: AsyncConnection[Any], worker_id: str, **columns: Any) -> None:
    """A row of horsies_workers, heard of just now unless told otherwise."""
    await _insert(db, "horsies_workers", {"worker_id": worker_id} | columns)


async def given_worker_state(db: AsyncConnection[Any], worker_id: str, **columns: Any) -> None:
    """A row of horsies_worker_states."""
    values: dict[str, Any] = {
        "worker_id": worker_id,
        "hostname": "host",
        "pid": 1,
        "processes": 2,
        "queues": ["default"],
        "tasks_running": 0,
        "tasks_claimed": 0,
        "max_claim_batch": 0,
        "max_claim_per_worker": 0,
        "queue_priorities": Jsonb({"default": 100}),
        "worker_started_at": "now",
    }
    await _insert(db, "horsies_worker_states", values | columns)


async def given_workflow(db: AsyncConnection[Any], **columns: Any) -> str:
    """A row of horsies_workflows; returns its id."""
    values = {"id": str(uuid.uuid4()), "name": "wf", "definition_key": "wf", "open_nodes": 0} | columns
    await _insert(db, "horsies_workflows", values)
    return str(values["id"])


async def given_node(db: AsyncConnection[Any], workflow_id: str, *, task_index: int = 0, **columns: Any) -> None:
    """A row of horsies_workflow_tasks."""
    values = {"workflow_id": workflow_id, "task_index": task_index, "node_id": f"n{task_index}"}
    await _insert(db, "horsies_workflow_tasks", values | {"node_type": "TASK", "task_name": "a_task"} | columns)


async def given_rollup(db: AsyncConnection[Any], **columns: Any) -> None:
    """A row of horsies_rollup: of the minute that begins now, and of all queues, unless told otherwise."""
    values = {"span": 60, "start_at": "now", "queue_name": "*", "task_name": "", "error_code": ""} | columns
    await _insert(db, "horsies_rollup", values)


async def given_audit(db: AsyncConnection[Any], **columns: Any) -> None:
    """A row of horsies_audit."""
    values = {"actor": "ann", "action": "task.cancel", "target_kind": "task", "outcome": "done"} | columns
    await _insert(db, "horsies_audit", values)


async def end_task(db: AsyncConnection[Any], task_id: str, status: TaskStatus, result: str | None = None) -> None:
    """What a worker does in the end, seen from the row."""
    await db.execute(
        "UPDATE horsies_tasks SET status = %s, result = %s, claimed = FALSE WHERE id = %s",
        [status.value, result, task_id],
    )


async def task_row(db: AsyncConnection[Any], task_id: str) -> dict[str, Any]:
    """Every column of one task."""
    cursor = await db.execute("SELECT to_jsonb(t) FROM horsies_tasks t WHERE id = %s", [task_id])
    row = await cursor.fetchone()
    assert row is not None, f"there is no task {task_id}"
    return dict(row[0])


async def count_tasks(db: AsyncConnection[Any]) -> int:
    row = await (await db.execute("SELECT count(*) FROM horsies_tasks")).fetchone()
    assert row is not None
    return int(row[0])


async def _insert(db: AsyncConnection[Any], table: str, values: dict[str, Any]) -> None:
    statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, values)),
        sql.SQL(", ").join(map(sql.Placeholder, values)),
    )
    await db.execute(statement, values)
