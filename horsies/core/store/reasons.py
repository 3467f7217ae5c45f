"""What is read to explain why a task or a node is not running: one typed function per statement, each with the facts
that it finds. They are planned anew each time, as those of `store/monitoring.py` are.
"""

from datetime import datetime
from typing import NamedTuple, cast

from horsies.core.db import Connection
from horsies.core.sql import load


class TaskFacts(NamedTuple):
    """A task with the facts about its workflow, its node, its owner and its last heartbeat."""

    now: datetime
    task_id: str
    task_name: str
    queue: str
    priority: int
    status: str
    enqueued_at: datetime
    next_retry_at: datetime | None
    good_until: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    finalizing_at: datetime | None
    error_code: str | None
    retry_count: int
    max_retries: int
    worker_id: str | None
    worker_heard_at: datetime | None  # None: the worker is not registered
    worker_is_live: bool
    beat_interval_s: float
    last_beat_at: datetime | None
    workflow_id: str | None
    workflow_name: str | None
    workflow_status: str | None
    paused_at: datetime | None
    node_index: int | None


class NodeFacts(NamedTuple):
    """A node with the facts about its workflow, and the first of the nodes it waits for, in words."""

    now: datetime
    workflow_id: str
    workflow_name: str
    workflow_status: str
    paused_at: datetime | None
    node_index: int
    node_id: str
    node_type: str
    task_name: str
    status: str
    task_id: str | None
    sub_workflow_id: str | None
    map_index: int | None
    join_type: str
    min_success: int | None
    deps_total: int
    deps_completed: int
    deps_failed: int
    deps_skipped: int
    error_code: str | None
    ready_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    waits_for: list[str]


class QueueFacts(NamedTuple):
    """What is ahead of a waiting task: how many are in flight, the first of them, and how many wait before it."""

    running: int
    held: int
    held_in_all: int
    held_here: list[str]
    held_anywhere: list[str]
    due_before: int
    is_only_a_part: bool  # more tasks may wait before it


async def task_facts(conn: Connection, task_id: str) -> TaskFacts | None:
    row = await (await conn.execute(load("monitoring/explain_task"), {"task_id": task_id}, prepare=False)).fetchone()
    return None if row is None else TaskFacts(*row)


async def node_facts(conn: Connection, workflow_id: str, task_index: int, *, most: int) -> NodeFacts | None:
    wanted = {"workflow_id": workflow_id, "task_index": task_index, "most": most}
    row = await (await conn.execute(load("monitoring/explain_node"), wanted, prepare=False)).fetchone()
    return None if row is None else NodeFacts(*row)


async def queue_facts(conn: Connection, task: TaskFacts, *, most: int, look: int) -> QueueFacts:
    wanted = {
        "queue": task.queue,
        "priority": task.priority,
        "enqueued_at": task.enqueued_at,
        "task_id": task.task_id,
        "most": most,
        "look": look,
    }
    [row] = await (await conn.execute(load("monitoring/explain_queue"), wanted, prepare=False)).fetchall()
    return QueueFacts(*row)


async def unknown_until(conn: Connection, task_name: str, queue: str, due_at: datetime) -> datetime | None:
    """When a task that no live worker of its queue knows is failed; None if nobody would do that."""
    wanted = {"task_name": task_name, "queue": queue, "due_at": due_at}
    [(time,)] = await (await conn.execute(load("monitoring/unknown_until"), wanted, prepare=False)).fetchall()
    return cast("datetime | None", time)


async def pausing_node(conn: Connection, workflow_id: str) -> tuple[str, str | None] | None:
    """The name and the error code of the first node whose failure has paused its workflow."""
    wanted = {"workflow_id": workflow_id}
    row = await (await conn.execute(load("monitoring/pausing_node"), wanted, prepare=False)).fetchone()
    return None if row is None else (row[0], row[1])
