"""Loads tasks as recovery hooks see them."""

from __future__ import annotations

from collections.abc import Sequence

from horsies.core.hooks import Job
from horsies.core.sql import load
from horsies.core.store.arrays import texts
from horsies.core.store.tasks import Connection
from horsies.core.types.status import TaskStatus


async def jobs(conn: Connection, task_ids: Sequence[str]) -> list[Job]:
    """Views of these tasks, in the order of the ids; missing tasks are left out."""
    cursor = await conn.execute(load("tasks/jobs"), {"ids": texts(task_ids)})
    found = {row[0]: Job(row[0], row[1], row[2], TaskStatus(row[3]), *row[4:]) for row in await cursor.fetchall()}
    return [found[task_id] for task_id in task_ids if task_id in found]
