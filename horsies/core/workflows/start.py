"""Writes a workflow: its row, those of its nodes, and the first tasks, in one transaction (F-80)."""

from __future__ import annotations

from horsies.core.store import workflows
from horsies.core.store.tasks import Connection
from horsies.core.workflows.layout import Layout


async def write(conn: Connection, layout: Layout) -> bool:
    """Insert all of it, in the caller's transaction or a separate one. False, without any change, if a workflow with
    that id exists (F-82)."""
    async with conn.transaction():
        if not await workflows.insert(conn, layout.workflows[:1]):
            return False
        if layout.workflows[1:]:
            await workflows.insert(conn, layout.workflows[1:])
        await workflows.insert_tasks(conn, layout.tasks)
        await workflows.insert_nodes(conn, layout.nodes)
        return True
