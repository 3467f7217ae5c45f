"""One typed function per statement of the query API about tasks, workers and schedules.

All of them only read. They are planned anew each time, because the same text serves any filter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from psycopg.rows import dict_row

from horsies.core.monitoring.filters import category_of
from horsies.core.monitoring.models.snapshots import ScheduleStateInfo
from horsies.core.monitoring.models.tasks import (
    ErrorFacet,
    Facets,
    FacetValue,
    GroupRow,
    StatusCount,
    TaskDetail,
    TaskSummary,
)
from horsies.core.monitoring.models.workers import WorkerHistoryPoint, WorkerStateInfo
from horsies.core.sql import load
from horsies.core.store import results
from horsies.core.store.tasks import Connection
from horsies.core.types.status import TaskStatus


async def settle(conn: Connection, timeout: timedelta) -> None:
    """Make the transaction read-only, with a time limit."""
    await conn.execute(
        load("monitoring/settings"), {"timeout_ms": int(timeout / timedelta(milliseconds=1))}, prepare=False
    )


async def list_tasks(conn: Connection, wanted: Mapping[str, Any]) -> tuple[TaskSummary, ...]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/list_tasks"), wanted, prepare=False)
        return tuple([_summary(row) for row in await cursor.fetchall()])


async def count_tasks(conn: Connection, wanted: Mapping[str, Any]) -> int:
    [(count,)] = await (await conn.execute(load("monitoring/count_tasks"), wanted, prepare=False)).fetchall()
    return int(count)


async def task_stats(conn: Connection, wanted: Mapping[str, Any]) -> tuple[StatusCount, ...]:
    """The count of every state, including those that do not occur."""
    cursor = await conn.execute(load("monitoring/task_stats"), wanted, prepare=False)
    return _counts(dict(await cursor.fetchall()), every=True)


async def task_facets(conn: Connection, wanted: Mapping[str, Any], *, most: int) -> Facets:
    cursor = await conn.execute(load("monitoring/task_facets"), {**wanted, "most": most}, prepare=False)
    found: dict[str, list[tuple[str, int]]] = {"task_names": [], "queues": [], "workers": [], "error_codes": []}
    for facet, value, count in await cursor.fetchall():
        found[facet].append((value, count))
    plain = {name: tuple(FacetValue(*pair) for pair in found[name]) for name in ("task_names", "queues", "workers")}
    codes = [(code, category_of(code), count) for code, count in found["error_codes"]]
    return Facets(**plain, error_codes=tuple(ErrorFacet(code, kind, n) for code, kind, n in codes if kind is not None))


async def task_breakdown(
    conn: Connection, wanted: Mapping[str, Any], *, group_by: str, limit: int
) -> tuple[tuple[GroupRow, ...], int, int]:
    """The largest groups, the number of groups, and the number of tasks in them."""
    params = {**wanted, "group_by": group_by, "limit": limit}
    rows = await (await conn.execute(load("monitoring/task_breakdown"), params, prepare=False)).fetchall()
    groups = tuple([GroupRow(value, total, _counts(counts)) for value, total, counts, _, _ in rows])
    return (groups, rows[0][3], rows[0][4]) if rows else ((), 0, 0)


async def task_detail(conn: Connection, task_id: str) -> TaskDetail | None:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/task_detail"), {"task_id": task_id}, prepare=False)
        row = await cursor.fetchone()
    if row is None:
        return None
    known = {**row, "status": TaskStatus(row["status"]), "error_category": category_of(row["error_code"])}
    return TaskDetail(**known, attempts=tuple(await results.attempts(conn, task_id)))


async def schedules(conn: Connection, *, most: int) -> tuple[ScheduleStateInfo, ...]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/schedules"), {"most": most}, prepare=False)
        return tuple([_schedule(row) for row in await cursor.fetchall()])


async def workers(conn: Connection, *, most: int) -> tuple[WorkerStateInfo, ...]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/workers"), {"most": most}, prepare=False)
        return tuple([_worker(row) for row in await cursor.fetchall()])


async def worker_history(conn: Connection, worker_id: str, *, limit: int) -> tuple[WorkerHistoryPoint, ...]:
    wanted = {"worker_id": worker_id, "limit": limit}
    cursor = await conn.execute(load("monitoring/worker_history"), wanted, prepare=False)
    return tuple([WorkerHistoryPoint(*row) for row in await cursor.fetchall()])


class Waiting(NamedTuple):
    """Tasks of one name that wait in one queue."""

    queue: str
    task_name: str
    number: int
    due: int
    oldest_due_seconds: float | None


async def waiting(conn: Connection) -> list[Waiting]:
    return [Waiting(*row) for row in await (await conn.execute(load("monitoring/waiting"), prepare=False)).fetchall()]


class InHand(NamedTuple):
    """Tasks of one name and queue that workers hold."""

    status: TaskStatus
    queue: str
    task_name: str
    number: int


async def in_flight(conn: Connection) -> list[InHand]:
    rows = await (await conn.execute(load("monitoring/in_flight"), prepare=False)).fetchall()
    return [InHand(TaskStatus(status), *rest) for status, *rest in rows]


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
    return [EndedOfLate(TaskStatus(status), *rest) for status, *rest in rows]


async def open_workflows(conn: Connection) -> dict[str, int]:
    return dict(await (await conn.execute(load("monitoring/open_workflows"), prepare=False)).fetchall())


async def database(conn: Connection) -> dict[str, Any]:
    """The fields of `DatabaseFacts`, and the time of the transaction as `taken_at`."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/database"), prepare=False)
        [row] = await cursor.fetchall()
    return row


def _summary(row: dict[str, Any]) -> TaskSummary:
    known = {"status": TaskStatus(row["status"]), "error_category": category_of(row["error_code"])}
    return TaskSummary(**{**row, **known})


def _counts(counts: Mapping[str, int], *, every: bool = False) -> tuple[StatusCount, ...]:
    """In the order of a task's life."""
    return tuple(StatusCount(status, counts.get(status, 0)) for status in TaskStatus if every or status in counts)


def _schedule(row: dict[str, Any]) -> ScheduleStateInfo:
    definition = row["definition"]
    try:
        parsed = None if definition is None else json.loads(definition)
    except (ValueError, RecursionError):  # numbers and depths that PostgreSQL takes
        parsed = None
    return ScheduleStateInfo(**{**row, "definition": parsed})


def _worker(row: dict[str, Any]) -> WorkerStateInfo:
    names = row["task_names"]
    return WorkerStateInfo(
        **{
            **row,
            "queues": tuple(row["queues"]),
            "task_names": tuple(map(str, names)) if isinstance(names, list) else None,
            "queue_priorities": row["queue_priorities"] or {},
            "queue_max_concurrency": row["queue_max_concurrency"] or {},
        }
    )
