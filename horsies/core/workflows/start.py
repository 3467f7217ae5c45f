"""Writes a workflow: its rows, those of its nodes, the tasks of the first ones, in one transaction (F-80)."""

from __future__ import annotations

from horsies.core.store import workflows
from horsies.core.store.tasks import Connection
from horsies.core.workflows.layout import Layout


async def write(conn: Connection, layout: Layout) -> bool:
    """Insert all of it, in the caller's transaction or one of its own. False, and nothing written, if a workflow of
    that id exists (F-82)."""
    async with conn.transaction():
        if not await workflows.insert(conn, layout.workflows[:1]):
            return False
        if layout.workflows[1:]:
            await workflows.insert(conn, layout.workflows[1:])
        await workflows.insert_tasks(conn, layout.tasks)
        await workflows.insert_nodes(conn, layout.nodes)
        return True
