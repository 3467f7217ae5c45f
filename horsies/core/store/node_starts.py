"""One typed function per statement about the start of a workflow's task: its node is locked before it and moves with
it.

They are separate from `store.workflows`, whose statements run under the lock of the workflow's row; these two do not
(D-63).
"""

from collections.abc import Iterable
from typing import NamedTuple

from horsies.core.sql import load
from horsies.core.store.arrays import texts
from horsies.core.store.tasks import Connection
from horsies.core.types.status import WorkflowStatus, WorkflowTaskStatus


class NodeCheck(NamedTuple):
    """What is checked before a workflow's task is started (L-25)."""

    status: WorkflowTaskStatus
    workflow: WorkflowStatus
    is_overdue: bool  # the deadline of the task has passed


async def lock(conn: Connection, task_ids: Iterable[str]) -> dict[str, NodeCheck]:
    """The locked nodes of these tasks, by task; nodes that are locked elsewhere are missing."""
    cursor = await conn.execute(load("workflows/lock_started_nodes"), {"ids": texts(task_ids)}, prepare=True)
    return {
        row[0]: NodeCheck(WorkflowTaskStatus(row[1]), WorkflowStatus(row[2]), row[3]) for row in await cursor.fetchall()
    }


async def mark_running(conn: Connection, task_ids: Iterable[str]) -> None:
    """ENQUEUED → RUNNING, in the transaction that has started these tasks."""
    await conn.execute(load("workflows/mark_running"), {"ids": texts(task_ids)}, prepare=True)
