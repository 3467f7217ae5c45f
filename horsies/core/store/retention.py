"""One typed function per statement that deletes old records (R-80), and per statement that counts what a manual purge
would delete or cancel. Each handles a bounded batch; the caller decides how long to continue, and holds the pruning
lock. The ordinary move cancels tasks. None is prepared: on an empty table any index looks good, and the plan of a
prepared statement is kept for a long time.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from horsies.core.db import Connection
from horsies.core.schema.install import RETENTION, lock_key
from horsies.core.sql import load
from horsies.core.store.rollup import SPANS

BATCH = 500
RETENTION_LOCK = lock_key(RETENTION)
SILENT_WORKERS = timedelta(hours=24)


class RetentionPosition(NamedTuple):
    """The position of a pass: after the row with this end time, as the server writes it, and this id."""

    ended_at: str
    row_id: str


START = RetentionPosition("-infinity", "")


class Choice(NamedTuple):
    """Which of the ended tasks are deleted; an empty field does not filter."""

    statuses: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    task_names: tuple[str, ...] = ()
    with_workflows: bool = True  # also tasks of ended workflows

    @property
    def params(self) -> dict[str, Any]:
        lists = {"statuses": self.statuses, "queues": self.queues, "task_names": self.task_names}
        return {name: list(values) for name, values in lists.items()} | {"with_workflows": self.with_workflows}


ALL = Choice()


class Portion(NamedTuple):
    """How many rows a statement looks at; without `deleting` they are only passed by."""

    most: int = BATCH
    deleting: bool = True


WHOLE = Portion()
PASS_ONE_BY = Portion(1, deleting=False)


class Pruned(NamedTuple):
    """How many rows of tasks or workflows, and of nodes, were deleted, and where to continue; None at the end of the
    pass."""

    rows: int
    nodes: int
    next: RetentionPosition | None


async def try_lock(conn: Connection, *, durable: bool = False) -> bool:
    """Take the pruning lock for the rest of this transaction; False if another process has it. The commit of a
    transaction that is not `durable` does not wait for the disk."""
    cursor = await conn.execute(load("workers/prune_lock"), {"key": RETENTION_LOCK, "durable": durable})
    [(is_mine, _)] = await cursor.fetchall()
    return bool(is_mine)


async def prune_heartbeats(conn: Connection, age: timedelta, longest: timedelta, most: int = BATCH) -> int:
    """Delete heartbeats older than `age` and older than every threshold; `longest` is the caller's longest
    threshold."""
    params = {"age": age, "longest": longest, "most": most}
    return await _deleted(conn, "tasks/prune_heartbeats", params)


async def has_old_heartbeats(conn: Connection, age: timedelta) -> bool:
    """Whether there may be something for `prune_heartbeats`."""
    [(is_old,)] = await (await conn.execute(load("tasks/old_heartbeats"), {"age": age}, prepare=False)).fetchall()
    return bool(is_old)


async def prune_worker_states(conn: Connection, age: timedelta, most: int = BATCH) -> int:
    """Delete snapshots of workers."""
    return await _deleted(conn, "workers/prune_states", {"age": age, "most": most})


async def prune_workers(conn: Connection, age: timedelta = SILENT_WORKERS, most: int = BATCH) -> int:
    """Delete the rows of workers that have been silent for this long and hold nothing."""
    return await _deleted(conn, "workers/prune", {"age": age, "most": most})


async def prune_rollup(conn: Connection, age: timedelta, most: int = BATCH) -> int:
    """Delete statistics."""
    return await _deleted(conn, "rollup/prune", {"age": age, "most": most, "spans": SPANS})


async def prune_audit(conn: Connection, age: timedelta, most: int = BATCH) -> int:
    """Delete records of what people did."""
    return await _deleted(conn, "audit/prune", {"age": age, "most": most})


async def prune_tasks(
    conn: Connection,
    age: timedelta,
    after: RetentionPosition = START,
    portion: Portion = WHOLE,
    choice: Choice = ALL,
) -> Pruned:
    """Delete tasks that ended before that time, with their attempts."""
    return await _step(conn, "tasks/prune", {"age": age, **portion._asdict(), **choice.params}, after)


async def prune_workflows(
    conn: Connection, age: timedelta, after: RetentionPosition = START, portion: Portion = WHOLE
) -> Pruned:
    """Delete nodes of workflows that ended before that time, and workflows without nodes and children.

    A parent is deleted in the pass after the one that deleted its children; passes are repeated while they delete
    anything.
    """
    return await _step(conn, "workflows/prune", {"age": age, **portion._asdict()}, after)


async def _deleted(conn: Connection, statement: str, params: dict[str, Any]) -> int:
    # Not by `rowcount`, which is unknown until the reply is there: the caller may send in one go.
    return len(await (await conn.execute(load(statement), params, prepare=False)).fetchall())


async def _step(conn: Connection, statement: str, params: dict[str, Any], after: RetentionPosition) -> Pruned:
    params = {**params, "after": after.ended_at, "after_id": after.row_id}
    cursor = await conn.execute(load(statement), params, prepare=False)
    row = await cursor.fetchone()
    return Pruned(0, 0, None) if row is None else Pruned(row[0], row[1], RetentionPosition(*row[2:]))


LOOK = 10_000  # rows that one statement looks at


@dataclass(frozen=True, slots=True)
class EndedCount:
    """How many tasks of one status, queue and name."""

    status: str
    queue: str
    task_name: str
    count: int


class Rank(NamedTuple):
    """The position of a waiting task in its queue."""

    priority: int
    enqueued_at: str
    task_id: str


FIRST = Rank(0, "-infinity", "")


class WaitingTask(NamedTuple):
    """A task that waits."""

    rank: Rank
    task_name: str
    is_chosen: bool


async def count_ended(
    conn: Connection, age: timedelta, choice: Choice, after: RetentionPosition = START, most: int = LOOK
) -> tuple[list[EndedCount], RetentionPosition | None]:
    """The part of the next rows that would be deleted, and where to continue; None at the end."""
    params = {"age": age, "most": most, "after": after.ended_at, "after_id": after.row_id, **choice.params}
    rows = await (await conn.execute(load("tasks/count_ended"), params, prepare=False)).fetchall()
    counts = [EndedCount(*row[2:]) for row in rows if row[5]]
    return counts, RetentionPosition(rows[0][0], rows[0][1]) if rows else None


async def waiting(
    conn: Connection,
    queue: str,
    age: timedelta,
    task_names: tuple[str, ...] = (),
    after: Rank = FIRST,
    most: int = LOOK,
) -> list[WaitingTask]:
    """The next waiting tasks of a queue, selected or not; none at the end."""
    params = {"queue": queue, "age": age, "task_names": list(task_names), "most": most}
    params |= {"priority": after.priority, "enqueued_at": after.enqueued_at, "after_id": after.task_id}
    rows = await (await conn.execute(load("tasks/waiting"), params, prepare=False)).fetchall()
    return [WaitingTask(Rank(row[2], row[3], row[0]), row[1], row[4]) for row in rows]
