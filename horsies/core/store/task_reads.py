"""One typed function per statement that reads tasks: for users, for the hooks of recovery, and for checks.

Nothing here changes anything: the moves of tasks are in `store/tasks.py`, with the reads that belong to them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from horsies.core.db import Connection
from horsies.core.hooks import Job
from horsies.core.models.tasks import TaskAttemptInfo
from horsies.core.sql import load, stored, texts
from horsies.core.types import TaskAttemptOutcome, TaskStatus


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
    return None if row is None else {**row, "status": stored(TaskStatus, row["status"])}


async def attempts(conn: AsyncConnection[Any], task_id: str) -> list[TaskAttemptInfo]:
    """The attempts of a task, newest first."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("tasks/attempts"), {"task_id": task_id})
        rows = await cursor.fetchall()
    return [TaskAttemptInfo(**{**row, "outcome": stored(TaskAttemptOutcome, row["outcome"])}) for row in rows]


async def jobs(conn: Connection, task_ids: Sequence[str]) -> list[Job]:
    """Views of these tasks, in the order of the ids; missing tasks are left out."""
    cursor = await conn.execute(load("tasks/jobs"), {"ids": texts(task_ids)})
    found = {
        row[0]: Job(row[0], row[1], row[2], stored(TaskStatus, row[3]), *row[4:]) for row in await cursor.fetchall()
    }
    return [found[task_id] for task_id in task_ids if task_id in found]


class WaitingTask(NamedTuple):
    """A task that waits, with its arguments as they are stored."""

    task_id: str
    task_name: str
    args: str | None
    kwargs: str | None


async def waiting(conn: Connection, queue: str, *, skip: int, most: int) -> list[WaitingTask]:
    """The tasks of a queue, in the order in which they are claimed: `most` of them after the first `skip`."""
    cursor = await conn.execute(load("checks/waiting"), {"queue": queue, "skip": skip, "most": most})
    return [WaitingTask(*row) for row in await cursor.fetchall()]
