"""One typed function per statement that deletes old records (R-80).

Each deletes a bounded batch and returns how many rows; the caller decides how long to continue, and holds the pruning
lock. None is prepared: on an empty table any index looks good, and the plan of a prepared statement is kept for a long
time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from horsies.core.schema.locks import RETENTION, lock_key
from horsies.core.sql import load
from horsies.core.store.tasks import Connection

BATCH = 500
RETENTION_LOCK = lock_key(RETENTION)
SILENT_WORKERS = timedelta(hours=24)


class Place(NamedTuple):
    """The position of a pass: after the row with this end time, as the server writes it, and this id."""

    ended_at: str
    row_id: str


START = Place("-infinity", "")


class Choice(NamedTuple):
    """Which of the ended tasks are deleted; an empty field does not filter."""

    statuses: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    task_names: tuple[str, ...] = ()
    with_workflows: bool = True  # also those of workflows that are at their end

    @property
    def params(self) -> dict[str, Any]:
        lists = {"statuses": self.statuses, "queues": self.queues, "task_names": self.task_names}
        return {name: list(values) for name, values in lists.items()} | {"with_workflows": self.with_workflows}


ALL = Choice()


class Pruned(NamedTuple):
    """How many rows of tasks or workflows, and of nodes, were deleted, and where to continue; None at the end of the
    pass."""

    rows: int
    nodes: int
    next: Place | None


async def try_lock(conn: Connection) -> bool:
    """Take the pruning lock for the rest of this transaction; False if another process has it."""
    cursor = await conn.execute(load("workers/prune_lock"), {"key": RETENTION_LOCK})
    [(is_mine,)] = await cursor.fetchall()
    return bool(is_mine)


async def prune_heartbeats(conn: Connection, age: timedelta, longest: timedelta, most: int = BATCH) -> int:
    """Delete heartbeats older than `age` and older than every threshold; `longest` is the caller's longest
    threshold."""
    params = {"age": age, "longest": longest, "most": most}
    return (await conn.execute(load("tasks/prune_heartbeats"), params, prepare=False)).rowcount


async def prune_worker_states(conn: Connection, age: timedelta, most: int = BATCH) -> int:
    """Delete snapshots of workers."""
    return (await conn.execute(load("workers/prune_states"), {"age": age, "most": most}, prepare=False)).rowcount


async def prune_workers(conn: Connection, age: timedelta = SILENT_WORKERS, most: int = BATCH) -> int:
    """Delete the rows of workers that have been silent for this long and hold nothing."""
    return (await conn.execute(load("workers/prune"), {"age": age, "most": most}, prepare=False)).rowcount


async def prune_tasks(
    conn: Connection, age: timedelta, after: Place = START, most: int = BATCH, choice: Choice = ALL
) -> Pruned:
    """Delete tasks that ended before that time, with their attempts."""
    return await _step(conn, "tasks/prune", {"age": age, "most": most, **choice.params}, after)


async def prune_workflows(conn: Connection, age: timedelta, after: Place = START, most: int = BATCH) -> Pruned:
    """Delete nodes of workflows that ended before that time, and workflows without nodes and children.

    A parent is deleted in the pass after the one that deleted its children; passes are repeated while they delete
    anything.
    """
    return await _step(conn, "workflows/prune", {"age": age, "most": most}, after)


async def _step(conn: Connection, statement: str, params: dict[str, Any], after: Place) -> Pruned:
    params = {**params, "after": after.ended_at, "after_id": after.row_id}
    cursor = await conn.execute(load(statement), params, prepare=False)
    row = await cursor.fetchone()
    return Pruned(0, 0, None) if row is None else Pruned(row[0], row[1], Place(*row[2:]))
