"""One typed function per statement by which people act on tasks: cancel, send again, change the queue, run now. Each
takes many tasks and leaves those alone that it does not apply to; `states` tells why.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from horsies.core.db import Connection
from horsies.core.sql import load, stored, texts
from horsies.core.types import TaskStatus


class CancelledTask(NamedTuple):
    """A task that was cancelled, and its state before."""

    id: str
    was: TaskStatus
    queue_name: str
    task_name: str


class TaskState(NamedTuple):
    """How a task stands."""

    status: TaskStatus
    workflow_id: str | None
    queue_name: str
    priority: int
    workflow_status: str | None = None
    is_due: bool = True
    is_overdue: bool = False


async def cancel(
    conn: Connection, ids: Iterable[str], result: str, *, include_running: bool = False, with_workflow: bool = False
) -> list[CancelledTask]:
    """PENDING, CLAIMED and, with `include_running`, RUNNING → CANCELLED; tasks of workflows only `with_workflow`."""
    params = {"ids": texts(ids), "include_running": include_running, "with_workflow": with_workflow, "result": result}
    rows = await (await conn.execute(load("tasks/cancel"), params)).fetchall()
    return [CancelledTask(id_, stored(TaskStatus, was), queue, name) for id_, was, queue, name, _ in rows]


async def rerun(conn: Connection, ids: Sequence[str], new_ids: Sequence[str], *, once: bool = False) -> dict[str, str]:
    """Copy tasks that ended without success and belong to no workflow; the ids of the copies by those of the tasks.
    `once`: there is one such copy of a task, whoever makes it."""
    params = {"ids": texts(ids), "new_ids": texts(new_ids), "once": once}
    return dict(await (await conn.execute(load("monitoring/rerun"), params, prepare=False)).fetchall())


async def sent_again(conn: Connection, ids: Iterable[str]) -> set[str]:
    """Those of these tasks that `rerun` would not copy `once` more, because there is such a copy."""
    rows = await (await conn.execute(load("monitoring/sent_again"), {"ids": texts(ids)}, prepare=False)).fetchall()
    return {task_id for (task_id,) in rows}


async def change_queue(conn: Connection, ids: Iterable[str], queue: str | None, priority: int | None) -> set[str]:
    """Another queue or priority for waiting tasks that belong to no workflow; return those that were changed."""
    params = {"ids": texts(ids), "queue": queue, "priority": priority}
    return {row[0] for row in await (await conn.execute(load("tasks/change_queue"), params, prepare=False)).fetchall()}


async def run_now(conn: Connection, ids: Iterable[str]) -> dict[str, datetime]:
    """Waiting tasks that are due later are due at once; return when those that were changed would have been due."""
    rows = await (await conn.execute(load("tasks/run_now"), {"ids": texts(ids)}, prepare=False)).fetchall()
    return {task_id: due for task_id, due, _ in rows}


async def states(conn: Connection, ids: Iterable[str]) -> dict[str, TaskState]:
    """How these tasks stand; those that do not exist are missing."""
    rows = await (await conn.execute(load("tasks/states"), {"ids": texts(ids)}, prepare=False)).fetchall()
    return {id_: TaskState(stored(TaskStatus, status), *rest) for id_, status, *rest in rows}
