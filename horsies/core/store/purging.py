"""One typed function per statement for manual purges: what would be deleted, and what waits.

Each reads a bounded batch and returns where to continue; retention deletes, and the ordinary move cancels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from horsies.core.sql import load
from horsies.core.store.arrays import texts
from horsies.core.store.retention import START, Choice, Place
from horsies.core.store.tasks import Connection

LOOK = 10_000  # rows that one statement looks at


@dataclass(frozen=True, slots=True)
class Ended:
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


class Waiting(NamedTuple):
    """A task that waits."""

    rank: Rank
    task_name: str
    is_chosen: bool


async def count_ended(
    conn: Connection, age: timedelta, choice: Choice, after: Place = START, most: int = LOOK
) -> tuple[list[Ended], Place | None]:
    """The part of the next rows that would be deleted, and where to continue; None at the end."""
    params = {"age": age, "most": most, "after": after.ended_at, "after_id": after.row_id, **choice.params}
    rows = await (await conn.execute(load("tasks/count_ended"), params, prepare=False)).fetchall()
    counts = [Ended(*row[2:]) for row in rows if row[5]]
    return counts, Place(rows[0][0], rows[0][1]) if rows else None


async def waiting(
    conn: Connection,
    queue: str,
    age: timedelta,
    task_names: tuple[str, ...] = (),
    after: Rank = FIRST,
    most: int = LOOK,
) -> list[Waiting]:
    """The next waiting tasks of a queue, selected or not; none at the end."""
    params = {"queue": queue, "age": age, "task_names": list(task_names), "most": most}
    params |= {"priority": after.priority, "enqueued_at": after.enqueued_at, "after_id": after.task_id}
    rows = await (await conn.execute(load("tasks/waiting"), params, prepare=False)).fetchall()
    return [Waiting(Rank(row[2], row[3], row[0]), row[1], row[4]) for row in rows]


async def cancel(conn: Connection, ids: Iterable[str], result: str) -> set[str]:
    """PENDING and CLAIMED → CANCELLED, for tasks that belong to no workflow; return those that moved."""
    params = {"ids": texts(ids), "include_running": False, "with_workflow": False, "result": result}
    return {row[0] for row in await (await conn.execute(load("tasks/cancel"), params)).fetchall()}
