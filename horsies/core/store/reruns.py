"""The statements by which a task is sent again."""

from __future__ import annotations

from typing import Any

from horsies.core.sql import load
from horsies.core.store.tasks import Connection


async def rerun(conn: Connection, task_id: str, new_id: str) -> bool:
    """Copy a task that ended without success; False if it did not end like that, or belongs to a workflow."""
    cursor = await conn.execute(load("monitoring/rerun"), {"task_id": task_id, "new_id": new_id}, prepare=False)
    return await cursor.fetchone() is not None


async def why_not_rerun(conn: Connection, task_id: str) -> tuple[Any, ...] | None:
    """The state of a task and the workflow it belongs to."""
    return await (await conn.execute(load("tasks/why_not_cancelled"), {"task_id": task_id})).fetchone()
