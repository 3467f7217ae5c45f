"""One typed function per statement of the query API and of snapshots: tasks, workers, schedules, workflows and the
database. All of them only read. They are planned anew each time, because the same text serves any filter.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

from psycopg.rows import dict_row

from horsies.core.db import Connection
from horsies.core.models.monitoring import cluster
from horsies.core.models.monitoring import tasks as models
from horsies.core.sql import load, stored, texts
from horsies.core.store import task_reads
from horsies.core.types import TaskStatus, WorkflowStatus, WorkflowTaskStatus

MOST_NAMES = 1_000  # task names of a worker that are shown
MOST_OPEN = 1_000  # nodes of a workflow that have not ended; if there are more, their number is not known


async def settle(conn: Connection, timeout: timedelta, *, reads_all: bool = False) -> None:
    """Make the transaction read-only, with a time limit. Only who reads everything may read a table as a whole."""
    wanted = {"timeout_ms": int(timeout / timedelta(milliseconds=1)), "reads_all": reads_all}
    await conn.execute(load("monitoring/settings"), wanted, prepare=False)


async def now(conn: Connection) -> datetime:
    """The time of this transaction, by the clock of the database."""
    [(moment,)] = await (await conn.execute(load("monitoring/now"), prepare=False)).fetchall()
    return cast(datetime, moment)


async def list_tasks(conn: Connection, wanted: Mapping[str, Any]) -> list[models.TaskSummary]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/list_tasks"), wanted, prepare=False)
        return [_summary(row) for row in await cursor.fetchall()]


async def tasks_by_id(conn: Connection, ids: Sequence[str]) -> list[models.TaskSummary]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/tasks_by_id"), {"ids": texts(ids)}, prepare=False)
        return [_summary(row) for row in await cursor.fetchall()]


async def arguments(conn: Connection, ids: Sequence[str], *, most: int) -> tuple[models.TaskArguments, ...]:
    """The arguments of these tasks, each cut to so many characters."""
    wanted = {"ids": texts(ids), "most": most}
    rows = await (await conn.execute(load("monitoring/arguments"), wanted, prepare=False)).fetchall()
    return tuple([models.TaskArguments(*row) for row in rows])


async def keyed(conn: Connection, key: str, task_names: list[str] | None, *, most: int) -> list[str]:
    """The ids of the tasks with this idempotency key, of these names or of any."""
    wanted = {"key": key, "task_names": task_names, "most": most}
    rows = await (await conn.execute(load("monitoring/keyed"), wanted, prepare=False)).fetchall()
    return [task_id for (task_id,) in rows]


async def has_few(conn: Connection, wanted: Mapping[str, Any]) -> bool:
    """Whether the source has at most `few` tasks."""
    [(has_few,)] = await (await conn.execute(load("monitoring/has_few"), wanted, prepare=False)).fetchall()
    return bool(has_few)


async def count_tasks(conn: Connection, wanted: Mapping[str, Any]) -> tuple[int, bool]:
    """How many match, and whether there may be more."""
    [(count, is_cut)] = await (await conn.execute(load("monitoring/count_tasks"), wanted, prepare=False)).fetchall()
    return int(count), bool(is_cut)


class Tally(NamedTuple):
    """Tasks of one state that have the same value of a facet. `is_cut`: there may be more, also of other values."""

    facet: str
    value: str | None
    status: TaskStatus
    number: int
    is_cut: bool


async def tally_tasks(conn: Connection, wanted: Mapping[str, Any], facets: Sequence[str]) -> list[Tally]:
    cursor = await conn.execute(load("monitoring/tally_tasks"), {**wanted, "facets": list(facets)}, prepare=False)
    return [
        Tally(facet, value, stored(TaskStatus, status), *rest)
        for facet, value, status, *rest in await cursor.fetchall()
    ]


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
    return models.TaskDetail(**known, attempts=tuple(await task_reads.attempts(conn, task_id)))


async def schedules(conn: Connection, *, most: int) -> tuple[cluster.ScheduleStateInfo, ...]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/schedules"), {"most": most}, prepare=False)
        return tuple([_schedule(row) for row in await cursor.fetchall()])


async def workers(conn: Connection, *, most: int) -> tuple[cluster.WorkerStateInfo, ...]:
    """Also of a schema that does not know the names of tasks yet."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/workers"), {"most": most}, prepare=False)
        rows = await cursor.fetchall()
    names = await _known_names(conn, {row["names_hash"] for row in rows} - {None})
    return tuple([_worker(row, names.get(row.pop("names_hash"))) for row in rows])


async def _known_names(conn: Connection, hashes: set[str]) -> dict[str, list[str]]:
    if not hashes:
        return {}
    wanted = {"hashes": texts(sorted(hashes)), "most": MOST_NAMES}
    return dict(await (await conn.execute(load("monitoring/known_names"), wanted, prepare=False)).fetchall())


async def worker_history(conn: Connection, worker_id: str, *, limit: int) -> tuple[cluster.WorkerHistoryPoint, ...]:
    wanted = {"worker_id": worker_id, "limit": limit}
    cursor = await conn.execute(load("monitoring/worker_history"), wanted, prepare=False)
    return tuple([cluster.WorkerHistoryPoint(*row) for row in await cursor.fetchall()])


async def worker_history_within(
    conn: Connection, worker_id: str, *, seconds: float, parts: int
) -> tuple[cluster.WorkerHistoryPoint, ...]:
    """The newest snapshot of each part of that time."""
    wanted = {"worker_id": worker_id, "seconds": seconds, "parts": parts}
    cursor = await conn.execute(load("monitoring/worker_history_within"), wanted, prepare=False)
    return tuple([cluster.WorkerHistoryPoint(*row) for row in await cursor.fetchall()])


class WaitingCount(NamedTuple):
    """Tasks of one name that wait in one queue. `is_cut`: the queue has more, also of other names. `is_share`: the
    number of the name is a share of that of its queue."""

    queue: str
    task_name: str
    number: int
    due: int
    is_cut: bool = False
    is_share: bool = False


class Depth(NamedTuple):
    """Tasks that wait in one queue; `is_cut`: there are more."""

    queue: str
    number: int
    due: int
    is_cut: bool


async def waiting_queues(conn: Connection, *, most: int) -> list[str]:
    """The queues in which tasks wait, the last ones by name."""
    cursor = await conn.execute(load("monitoring/waiting_queues"), {"most": most}, prepare=False)
    return [name for (name,) in await cursor.fetchall()]


async def waiting(conn: Connection, queues: Sequence[str], *, most: int | None) -> list[WaitingCount]:
    """What waits in these queues; at most so many tasks of each are counted."""
    wanted = {"queues": list(queues), "most": most}
    cursor = await conn.execute(load("monitoring/waiting"), wanted, prepare=False)
    return [WaitingCount(*row) for row in await cursor.fetchall()]


async def depths(conn: Connection, queues: Sequence[str], *, most: int) -> list[Depth]:
    """How many tasks wait in these queues, whatever their names; at most so many of each are counted."""
    cursor = await conn.execute(load("monitoring/depths"), {"queues": list(queues), "most": most}, prepare=False)
    return [Depth(*row) for row in await cursor.fetchall()]


async def waiting_sample(conn: Connection, queues: Sequence[str], *, pages: int) -> list[WaitingCount]:
    """About what waits in these queues, from a sample of so many pages of the table."""
    wanted = {"queues": list(queues), "pages": pages}
    cursor = await conn.execute(load("monitoring/waiting_sample"), wanted, prepare=False)
    return [WaitingCount(*row)._replace(is_cut=True) for row in await cursor.fetchall()]


class OldestDue(NamedTuple):
    """The task of a queue that has been due for longest, and for how long."""

    seconds: float
    task_id: str


async def oldest_due(conn: Connection, queues: Sequence[str]) -> dict[str, OldestDue]:
    """The oldest due task of each queue that has one."""
    cursor = await conn.execute(load("monitoring/oldest_due"), {"queues": list(queues)}, prepare=False)
    return {queue: OldestDue(seconds, task_id) for queue, seconds, task_id in await cursor.fetchall()}


class InFlightCount(NamedTuple):
    """Tasks of one name and queue that workers hold. `is_cut`: there are more, also in other queues."""

    status: TaskStatus
    queue: str
    task_name: str
    number: int
    is_cut: bool = False


async def in_flight(conn: Connection, *, most: int | None) -> list[InFlightCount]:
    rows = await (await conn.execute(load("monitoring/in_flight"), {"most": most}, prepare=False)).fetchall()
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


async def open_workflows(conn: Connection, *, most: int | None) -> dict[str, int]:
    cursor = await conn.execute(load("monitoring/open_workflows"), {"most": most}, prepare=False)
    return dict(await cursor.fetchall())


async def database(conn: Connection) -> dict[str, Any]:
    """The fields of `DatabaseFacts`, and the time of the transaction as `taken_at`."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/database"), prepare=False)
        [row] = await cursor.fetchall()
    return row


def _summary(row: dict[str, Any]) -> models.TaskSummary:
    known = {"status": stored(TaskStatus, row["status"]), "error_category": models.category_of(row["error_code"])}
    return models.TaskSummary(**{**row, **known})


def _schedule(row: dict[str, Any]) -> cluster.ScheduleStateInfo:
    definition = row["definition"]
    try:
        parsed = None if definition is None else json.loads(definition)
    except (ValueError, RecursionError):  # PostgreSQL accepts numbers and depths that Python refuses
        parsed = None
    return cluster.ScheduleStateInfo(**{**row, "definition": parsed if isinstance(parsed, dict) else None})


def _worker(row: dict[str, Any], known: list[str] | None) -> cluster.WorkerStateInfo:
    names = row["task_names"] if known is None else known
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
_OF_DETAIL = models.WorkflowTaskDetail.__slots__


async def workflow_names(conn: Connection, *, most: int) -> tuple[str, ...]:
    cursor = await conn.execute(load("monitoring/workflow_names"), {"most": most}, prepare=False)
    return tuple([name for (name,) in await cursor.fetchall()])


async def list_workflows(
    conn: Connection, *, name: str | None, status: WorkflowStatus | None, limit: int, look: int
) -> tuple[models.WorkflowRunSummary, ...]:
    """Active workflows, newest first; then ended ones, last ended first; `look` says how many are looked at."""
    wanted = {"workflow_name": name, "status": status and status.value, "limit": limit, "look": look}
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/list_workflows"), {**wanted, "most_open": MOST_OPEN}, prepare=False)
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
    return None if row is None else (_node(row), {name: row[name] for name in row if name in _OF_DETAIL})


def _run(row: dict[str, Any]) -> models.WorkflowRunSummary:
    return models.WorkflowRunSummary(
        **{**{name: row[name] for name in _OF_RUN}, "status": stored(WorkflowStatus, row["status"])}
    )


def _node(row: dict[str, Any]) -> models.WorkflowNodeInfo:
    return models.WorkflowNodeInfo(
        **{**{name: row[name] for name in _OF_NODE}, "status": stored(WorkflowTaskStatus, row["status"])}
    )
