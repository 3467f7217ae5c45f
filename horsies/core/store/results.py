"""One typed function per statement that reads the state and the end of tasks, and one for the row that a waiting client
writes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from horsies.core.models.tasks import TaskAttemptInfo
from horsies.core.sql import load
from horsies.core.types.status import TaskAttemptOutcome, TaskStatus


class Ended(NamedTuple):
    """A task that ended; a missing task has no status."""

    task_id: str
    task_name: str | None
    status: TaskStatus | None
    result: str | None
    failed_reason: str | None


async def ended(conn: AsyncConnection[Any], ids: list[str]) -> list[Ended]:
    """Those of the tasks that ended or do not exist."""
    cursor = await conn.execute(load("tasks/results"), {"ids": ids}, prepare=True)
    return [
        Ended(task_id, name, TaskStatus(status) if status else None, result, reason)
        for task_id, name, status, result, reason in await cursor.fetchall()
    ]


async def announce(conn: AsyncConnection[Any], ids: list[str], holder: str, seconds: float) -> None:
    await conn.execute(load("waiting/announce"), {"ids": ids, "holder": holder, "seconds": seconds})


async def withdraw(conn: AsyncConnection[Any], ids: list[str], holder: str) -> None:
    await conn.execute(load("waiting/withdraw"), {"ids": ids, "holder": holder})


async def info(
    conn: AsyncConnection[Any], task_id: str, *, include_result: bool, include_failed_reason: bool
) -> dict[str, Any] | None:
    """The columns of `TaskInfo`, with the result as stored text."""
    wanted = {
        "task_id": task_id,
        "include_result": include_result,
        "include_failed_reason": include_failed_reason,
    }
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("tasks/info"), wanted)
        row = await cursor.fetchone()
    return None if row is None else {**row, "status": TaskStatus(row["status"])}


async def attempts(conn: AsyncConnection[Any], task_id: str) -> list[TaskAttemptInfo]:
    """The attempts of a task, newest first."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("tasks/attempts"), {"task_id": task_id})
        rows = await cursor.fetchall()
    return [TaskAttemptInfo(**{**row, "outcome": TaskAttemptOutcome(row["outcome"])}) for row in rows]
