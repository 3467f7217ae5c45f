"""One typed function per statement of the query API, of snapshots and of explanations: tasks, workers, schedules,
workflows and the database. All of them only read. They are planned anew each time, because the same text serves any
filter.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from psycopg.rows import dict_row

from horsies.core.db import Connection
from horsies.core.models.monitoring import cluster
from horsies.core.models.monitoring import tasks as models
from horsies.core.sql import load, stored
from horsies.core.store import tasks
from horsies.core.types import TaskStatus, WorkflowStatus, WorkflowTaskStatus


async def settle(conn: Connection, timeout: timedelta) -> None:
    """Make the transaction read-only, with a time limit."""
    await conn.execute(
        load("monitoring/settings"), {"timeout_ms": int(timeout / timedelta(milliseconds=1))}, prepare=False
    )


async def list_tasks(conn: Connection, wanted: Mapping[str, Any]) -> tuple[models.TaskSummary, ...]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/list_tasks"), wanted, prepare=False)
        return tuple([_summary(row) for row in await cursor.fetchall()])


async def count_tasks(conn: Connection, wanted: Mapping[str, Any]) -> int:
    [(count,)] = await (await conn.execute(load("monitoring/count_tasks"), wanted, prepare=False)).fetchall()
    return int(count)


async def task_stats(conn: Connection, wanted: Mapping[str, Any]) -> tuple[models.StatusCount, ...]:
    """The count of every state, including those that do not occur."""
    cursor = await conn.execute(load("monitoring/task_stats"), wanted, prepare=False)
    return _counts(dict(await cursor.fetchall()), every=True)


async def task_facets(conn: Connection, wanted: Mapping[str, Any], *, most: int) -> models.Facets:
    cursor = await conn.execute(load("monitoring/task_facets"), {**wanted, "most": most}, prepare=False)
    found: dict[str, list[tuple[str, int]]] = {"task_names": [], "queues": [], "workers": [], "error_codes": []}
    for facet, value, count in await cursor.fetchall():
        found[facet].append((value, count))
    plain = {
        name: tuple(models.FacetValue(*pair) for pair in found[name]) for name in ("task_names", "queues", "workers")
    }
    codes = [(code, models.category_of(code), count) for code, count in found["error_codes"]]
    return models.Facets(
        **plain, error_codes=tuple(models.ErrorFacet(code, kind, n) for code, kind, n in codes if kind is not None)
    )


async def task_breakdown(
    conn: Connection, wanted: Mapping[str, Any], *, group_by: str, limit: int
) -> tuple[tuple[models.GroupRow, ...], int, int]:
    """The largest groups, the number of groups, and the number of tasks in them."""
    params = {**wanted, "group_by": group_by, "limit": limit}
    rows = await (await conn.execute(load("monitoring/task_breakdown"), params, prepare=False)).fetchall()
    groups = tuple([models.GroupRow(value, total, _counts(counts)) for value, total, counts, _, _ in rows])
    return (groups, rows[0][3], rows[0][4]) if rows else ((), 0, 0)


async def task_detail(conn: Connection, task_id: str) -> models.TaskDetail | None:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/task_detail"), {"task_id": task_id}, prepare=False)
        row = await cursor.fetchone()
    if row is None:
        return None
    known = {
        **row,
        "status": stored(TaskStatus, row["status"]),
        "error_category": models.category_of(row["error_code"]),
    }
    return models.TaskDetail(**known, attempts=tuple(await tasks.attempts(conn, task_id)))


async def schedules(conn: Connection, *, most: int) -> tuple[cluster.ScheduleStateInfo, ...]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/schedules"), {"most": most}, prepare=False)
        return tuple([_schedule(row) for row in await cursor.fetchall()])


async def workers(conn: Connection, *, most: int) -> tuple[cluster.WorkerStateInfo, ...]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/workers"), {"most": most}, prepare=False)
        return tuple([_worker(row) for row in await cursor.fetchall()])


async def worker_history(conn: Connection, worker_id: str, *, limit: int) -> tuple[cluster.WorkerHistoryPoint, ...]:
    wanted = {"worker_id": worker_id, "limit": limit}
    cursor = await conn.execute(load("monitoring/worker_history"), wanted, prepare=False)
    return tuple([cluster.WorkerHistoryPoint(*row) for row in await cursor.fetchall()])


class WaitingCount(NamedTuple):
    """Tasks of one name that wait in one queue."""

    queue: str
    task_name: str
    number: int
    due: int
    oldest_due_seconds: float | None


async def waiting(conn: Connection) -> list[WaitingCount]:
    return [
        WaitingCount(*row) for row in await (await conn.execute(load("monitoring/waiting"), prepare=False)).fetchall()
    ]


class InFlightCount(NamedTuple):
    """Tasks of one name and queue that workers hold."""

    status: TaskStatus
    queue: str
    task_name: str
    number: int


async def in_flight(conn: Connection) -> list[InFlightCount]:
    rows = await (await conn.execute(load("monitoring/in_flight"), prepare=False)).fetchall()
    return [InFlightCount(stored(TaskStatus, status), *rest) for status, *rest in rows]


class EndedOfLate(NamedTuple):
    """Tasks of one name and queue that ended recently, and how far back the query went."""

    status: TaskStatus
    queue: str
    task_name: str
    number: int
    last_minute: int
    reach_seconds: float


async def ended(conn: Connection, window: timedelta, *, most: int) -> list[EndedOfLate]:
    wanted = {"window": window, "most": most}
    rows = await (await conn.execute(load("monitoring/ended"), wanted, prepare=False)).fetchall()
    return [EndedOfLate(stored(TaskStatus, status), *rest) for status, *rest in rows]


async def open_workflows(conn: Connection) -> dict[str, int]:
    return dict(await (await conn.execute(load("monitoring/open_workflows"), prepare=False)).fetchall())


async def database(conn: Connection) -> dict[str, Any]:
    """The fields of `DatabaseFacts`, and the time of the transaction as `taken_at`."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/database"), prepare=False)
        [row] = await cursor.fetchall()
    return row


def _summary(row: dict[str, Any]) -> models.TaskSummary:
    known = {"status": stored(TaskStatus, row["status"]), "error_category": models.category_of(row["error_code"])}
    return models.TaskSummary(**{**row, **known})


def _counts(counts: Mapping[str, int], *, every: bool = False) -> tuple[models.StatusCount, ...]:
    """In the order of a task's life."""
    return tuple(
        models.StatusCount(status, counts.get(status, 0)) for status in TaskStatus if every or status in counts
    )


def _schedule(row: dict[str, Any]) -> cluster.ScheduleStateInfo:
    definition = row["definition"]
    try:
        parsed = None if definition is None else json.loads(definition)
    except (ValueError, RecursionError):  # PostgreSQL accepts numbers and depths that Python refuses
        parsed = None
    return cluster.ScheduleStateInfo(**{**row, "definition": parsed})


def _worker(row: dict[str, Any]) -> cluster.WorkerStateInfo:
    names = row["task_names"]
    return cluster.WorkerStateInfo(
        **{
            **row,
            "queues": tuple([queue for queue in row["queues"] if queue is not None]),
            "task_names": tuple(map(str, names)) if isinstance(names, list) else None,
            "queue_priorities": _whole_numbers(row["queue_priorities"]),
            "queue_max_concurrency": _whole_numbers(row["queue_max_concurrency"]),
        }
    )


def _whole_numbers(found: Any) -> dict[str, int]:
    """What a worker says of its queues, as far as that can be read (R-24)."""
    if not isinstance(found, dict):
        return {}
    return {name: number for name, number in found.items() if isinstance(number, int)}


_OF_RUN = models.WorkflowRunSummary.__slots__
_OF_NODE = models.WorkflowNodeInfo.__slots__


async def workflow_names(conn: Connection, *, most: int) -> tuple[str, ...]:
    cursor = await conn.execute(load("monitoring/workflow_names"), {"most": most}, prepare=False)
    return tuple([name for (name,) in await cursor.fetchall()])


async def list_workflows(
    conn: Connection, *, name: str | None, status: WorkflowStatus | None, limit: int
) -> tuple[models.WorkflowRunSummary, ...]:
    """Active workflows, newest first; then ended ones, last ended first."""
    wanted = {"workflow_name": name, "status": status and status.value, "limit": limit}
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/list_workflows"), wanted, prepare=False)
        return tuple([_run(row) for row in await cursor.fetchall()])


async def workflow(conn: Connection, workflow_id: str) -> tuple[models.WorkflowRunSummary, dict[str, Any]] | None:
    """The workflow as a line, and the other fields of `WorkflowRunDetail` from its row."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/workflow"), {"workflow_id": workflow_id}, prepare=False)
        row = await cursor.fetchone()
    return None if row is None else (_run(row), {name: row[name] for name in row if name not in _OF_RUN})


async def nodes(conn: Connection, workflow_id: str, *, most: int) -> tuple[models.WorkflowNodeInfo, ...]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        wanted = {"workflow_id": workflow_id, "most": most}
        await cursor.execute(load("monitoring/workflow_nodes"), wanted, prepare=False)
        return tuple([_node(row) for row in await cursor.fetchall()])


async def edges(conn: Connection, workflow_id: str, *, most: int) -> tuple[models.WorkflowEdge, ...]:
    wanted = {"workflow_id": workflow_id, "most": most}
    cursor = await conn.execute(load("monitoring/workflow_edges"), wanted, prepare=False)
    return tuple([models.WorkflowEdge(*row) for row in await cursor.fetchall()])


async def failed_nodes(conn: Connection, workflow_id: str, *, most: int) -> tuple[int, ...]:
    wanted = {"workflow_id": workflow_id, "most": most}
    cursor = await conn.execute(load("monitoring/failed_nodes"), wanted, prepare=False)
    return tuple([index for (index,) in await cursor.fetchall()])


async def node(
    conn: Connection, workflow_id: str, task_index: int
) -> tuple[models.WorkflowNodeInfo, dict[str, Any]] | None:
    """The node as a line, and the other fields of `WorkflowTaskDetail` from its row."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        wanted = {"workflow_id": workflow_id, "task_index": task_index}
        await cursor.execute(load("monitoring/workflow_node"), wanted, prepare=False)
        row = await cursor.fetchone()
    return None if row is None else (_node(row), {name: row[name] for name in row if name not in _OF_NODE})


def _run(row: dict[str, Any]) -> models.WorkflowRunSummary:
    return models.WorkflowRunSummary(
        **{**{name: row[name] for name in _OF_RUN}, "status": stored(WorkflowStatus, row["status"])}
    )


def _node(row: dict[str, Any]) -> models.WorkflowNodeInfo:
    return models.WorkflowNodeInfo(
        **{**{name: row[name] for name in _OF_NODE}, "status": stored(WorkflowTaskStatus, row["status"])}
    )


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
