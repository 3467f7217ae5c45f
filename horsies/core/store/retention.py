"""A typed function per statement that deletes what has been kept long enough (R-80). Each deletes a bounded batch and
says how much that was; going on, and for how long, is the caller's business, and so is the lock of the only pruner.
None is prepared: on an empty table any index looks good, and the plan of a prepared statement is kept for long.
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
    """Where a pass has got to: behind the row that ended at this time, as the server writes it, and has this id."""

    ended_at: str
    row_id: str


START = Place("-infinity", "")


class Choice(NamedTuple):
    """Which of the ended tasks go; an empty part does not choose."""

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
    """How many rows of tasks or workflows, and of nodes, are gone, and where to go on; None at the end of the pass."""

    rows: int
    nodes: int
    next: Place | None


async def try_lock(conn: Connection) -> bool:
    """Be the only pruner for the rest of this transaction; False if somebody else is."""
    cursor = await conn.execute(load("workers/prune_lock"), {"key": RETENTION_LOCK})
    [(is_mine,)] = await cursor.fetchall()
    return bool(is_mine)


async def prune_heartbeats(conn: Connection, age: timedelta, longest: timedelta, most: int = BATCH) -> int:
    """Delete heartbeats older than `age` and than every threshold; `longest` is that of the caller."""
    params = {"age": age, "longest": longest, "most": most}
    return (await conn.execute(load("tasks/prune_heartbeats"), params, prepare=False)).rowcount


async def prune_worker_states(conn: Connection, age: timedelta, most: int = BATCH) -> int:
    """Delete snapshots of workers."""
    return (await conn.execute(load("workers/prune_states"), {"age": age, "most": most}, prepare=False)).rowcount


async def prune_workers(conn: Connection, age: timedelta = SILENT_WORKERS, most: int = BATCH) -> int:
    """Delete the rows of workers that are silent for so long and hold nothing."""
    return (await conn.execute(load("workers/prune"), {"age": age, "most": most}, prepare=False)).rowcount


async def prune_tasks(
    conn: Connection, age: timedelta, after: Place = START, most: int = BATCH, choice: Choice = ALL
) -> Pruned:
    """Delete tasks that ended before, with their attempts."""
    return await _step(conn, "tasks/prune", {"age": age, "most": most, **choice.params}, after)


async def prune_workflows(conn: Connection, age: timedelta, after: Place = START, most: int = BATCH) -> Pruned:
    """Delete nodes of workflows that ended before, and workflows that have neither nodes nor children any more.

    A parent goes in the pass after the one that took its children: passes are repeated while they delete anything."""
    return await _step(conn, "workflows/prune", {"age": age, "most": most}, after)


async def _step(conn: Connection, statement: str, params: dict[str, Any], after: Place) -> Pruned:
    params = {**params, "after": after.ended_at, "after_id": after.row_id}
    cursor = await conn.execute(load(statement), params, prepare=False)
    row = await cursor.fetchone()
    return Pruned(0, 0, None) if row is None else Pruned(row[0], row[1], Place(*row[2:]))
