"""One typed function per statement of the query API about workflows. All of them only read."""

from __future__ import annotations

from typing import Any

from psycopg.rows import dict_row

from horsies.core.monitoring.models.workflows import WorkflowEdge, WorkflowNodeInfo, WorkflowRunSummary
from horsies.core.sql import load
from horsies.core.store.tasks import Connection
from horsies.core.types.status import WorkflowStatus, WorkflowTaskStatus

_OF_RUN = WorkflowRunSummary.__slots__
_OF_NODE = WorkflowNodeInfo.__slots__


async def workflow_names(conn: Connection, *, most: int) -> tuple[str, ...]:
    cursor = await conn.execute(load("monitoring/workflow_names"), {"most": most}, prepare=False)
    return tuple([name for (name,) in await cursor.fetchall()])


async def list_workflows(
    conn: Connection, *, name: str | None, status: WorkflowStatus | None, limit: int
) -> tuple[WorkflowRunSummary, ...]:
    """Active workflows, newest first; then ended ones, last ended first."""
    wanted = {"workflow_name": name, "status": status and status.value, "limit": limit}
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/list_workflows"), wanted, prepare=False)
        return tuple([_run(row) for row in await cursor.fetchall()])


async def workflow(conn: Connection, workflow_id: str) -> tuple[WorkflowRunSummary, dict[str, Any]] | None:
    """The workflow as a line, and the other fields of `WorkflowRunDetail` from its row."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("monitoring/workflow"), {"workflow_id": workflow_id}, prepare=False)
        row = await cursor.fetchone()
    return None if row is None else (_run(row), {name: row[name] for name in row if name not in _OF_RUN})


async def nodes(conn: Connection, workflow_id: str, *, most: int) -> tuple[WorkflowNodeInfo, ...]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        wanted = {"workflow_id": workflow_id, "most": most}
        await cursor.execute(load("monitoring/workflow_nodes"), wanted, prepare=False)
        return tuple([_node(row) for row in await cursor.fetchall()])


async def edges(conn: Connection, workflow_id: str, *, most: int) -> tuple[WorkflowEdge, ...]:
    wanted = {"workflow_id": workflow_id, "most": most}
    cursor = await conn.execute(load("monitoring/workflow_edges"), wanted, prepare=False)
    return tuple([WorkflowEdge(*row) for row in await cursor.fetchall()])


async def failed_nodes(conn: Connection, workflow_id: str, *, most: int) -> tuple[int, ...]:
    wanted = {"workflow_id": workflow_id, "most": most}
    cursor = await conn.execute(load("monitoring/failed_nodes"), wanted, prepare=False)
    return tuple([index for (index,) in await cursor.fetchall()])


async def node(conn: Connection, workflow_id: str, task_index: int) -> tuple[WorkflowNodeInfo, dict[str, Any]] | None:
    """The node as a line, and the other fields of `WorkflowTaskDetail` from its row."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        wanted = {"workflow_id": workflow_id, "task_index": task_index}
        await cursor.execute(load("monitoring/workflow_node"), wanted, prepare=False)
        row = await cursor.fetchone()
    return None if row is None else (_node(row), {name: row[name] for name in row if name not in _OF_NODE})


def _run(row: dict[str, Any]) -> WorkflowRunSummary:
    return WorkflowRunSummary(**{**{name: row[name] for name in _OF_RUN}, "status": WorkflowStatus(row["status"])})


def _node(row: dict[str, Any]) -> WorkflowNodeInfo:
    return WorkflowNodeInfo(**{**{name: row[name] for name in _OF_NODE}, "status": WorkflowTaskStatus(row["status"])})
