"""One typed function per statement about the end of tasks, and the mark of a client that waits for it."""

from typing import Any, NamedTuple

from psycopg import AsyncConnection

from horsies.core.sql import load, stored
from horsies.core.types import TaskStatus


class EndedTask(NamedTuple):
    """A task that ended; a missing task has no status."""

    task_id: str
    task_name: str | None
    status: TaskStatus | None
    result: str | None
    failed_reason: str | None


async def ended(conn: AsyncConnection[Any], ids: list[str]) -> list[EndedTask]:
    """Those of the tasks that ended or do not exist."""
    cursor = await conn.execute(load("tasks/results"), {"ids": ids}, prepare=True)
    return [
        EndedTask(task_id, name, stored(TaskStatus, status) if status else None, result, reason)
        for task_id, name, status, result, reason in await cursor.fetchall()
    ]


async def announce(conn: AsyncConnection[Any], ids: list[str], holder: str, seconds: float) -> None:
    await conn.execute(load("waiting/announce"), {"ids": ids, "holder": holder, "seconds": seconds})


async def withdraw(conn: AsyncConnection[Any], ids: list[str], holder: str) -> None:
    await conn.execute(load("waiting/withdraw"), {"ids": ids, "holder": holder})
