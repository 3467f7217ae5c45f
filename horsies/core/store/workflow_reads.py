"""One typed function per statement that reads the state of workflows and their nodes; `NoSuchWorkflow` if there is
none.

Nothing here changes anything: the statements of the engine are in `store/workflows.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from horsies.core.sql import load, stored
from horsies.core.types import WorkflowStatus, WorkflowTaskStatus

DEEPEST = 32  # how many levels of child workflows there may be (F-65)


class NoSuchWorkflow(LookupError):
    """There is no workflow with this id."""


class StoredNode(NamedTuple):
    """What is needed to make a result from a node's row."""

    task_index: int
    node_id: str
    node_type: str
    task_name: str
    sub_workflow_key: str | None
    status: WorkflowTaskStatus
    result: str | None


class WorkflowEnded(NamedTuple):
    """A workflow that ended or is paused; a missing workflow has no status. `output` is its output node."""

    workflow_id: str
    status: WorkflowStatus | None
    error: str | None = None
    output: StoredNode | None = None


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node as it is now. `seconds` is how long it has run, by the clock of the database."""

    workflow_id: str
    task_index: int
    node_id: str
    node_type: str
    task_name: str
    sub_workflow_key: str | None
    status: WorkflowTaskStatus
    result: str | None
    error_code: str | None
    dependencies: Sequence[int]
    map_index: int | None
    map_position: int | None
    task_id: str | None
    previous_task_ids: Sequence[str]
    sub_workflow_id: str | None
    started_at: datetime | None
    completed_at: datetime | None
    seconds: float | None

    def stored(self) -> StoredNode:
        return StoredNode(
            self.task_index,
            self.node_id,
            self.node_type,
            self.task_name,
            self.sub_workflow_key,
            self.status,
            self.result,
        )


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    """A workflow as it is now."""

    id: str
    name: str
    definition_key: str
    status: WorkflowStatus
    error: str | None
    error_code: str | None
    parent_workflow_id: str | None
    good_until: datetime | None
    sent_at: datetime
    started_at: datetime | None
    paused_at: datetime | None
    completed_at: datetime | None
    seconds: float | None


async def ended(conn: AsyncConnection[Any], ids: list[str]) -> list[WorkflowEnded]:
    """Those of the workflows that ended, are paused or do not exist."""
    cursor = await conn.execute(load("handles/ended"), {"ids": ids}, prepare=True)
    return [
        WorkflowEnded(
            workflow_id,
            stored(WorkflowStatus, status) if status else None,
            error,
            None if index is None else _stored((index, *node)),
        )
        for workflow_id, status, error, index, *node in await cursor.fetchall()
    ]


async def status(conn: AsyncConnection[Any], workflow_id: str) -> WorkflowStatus:
    row = await (await conn.execute(load("handles/status"), {"workflow_id": workflow_id})).fetchone()
    if row is None:
        raise NoSuchWorkflow(workflow_id)
    return stored(WorkflowStatus, row[0])


async def definition_key(conn: AsyncConnection[Any], workflow_id: str) -> str:
    row = await (await conn.execute(load("handles/definition_key"), {"workflow_id": workflow_id})).fetchone()
    if row is None:
        raise NoSuchWorkflow(workflow_id)
    return str(row[0])


async def node(conn: AsyncConnection[Any], workflow_id: str, node_id: str) -> StoredNode | None:
    """None if the workflow has no such node; raises `NoSuchWorkflow` if there is no workflow."""
    wanted = {"workflow_id": workflow_id, "node_id": node_id}
    row = await (await conn.execute(load("handles/node"), wanted)).fetchone()
    if row is None:
        raise NoSuchWorkflow(workflow_id)
    return None if row[0] is None else _stored(row)


async def results(conn: AsyncConnection[Any], workflow_id: str) -> list[StoredNode]:
    """The nodes of a workflow without the elements of its maps, by index."""
    rows = await (await conn.execute(load("handles/results"), {"workflow_id": workflow_id})).fetchall()
    if not rows:  # every workflow has nodes
        raise NoSuchWorkflow(workflow_id)
    return [_stored(row) for row in rows]


async def nodes(conn: AsyncConnection[Any], workflow_ids: Sequence[str], *, with_results: bool) -> list[NodeRow]:
    """All nodes and elements of these workflows, by workflow and index."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("handles/nodes"), {"workflow_ids": list(workflow_ids), "results": with_results})
        rows = await cursor.fetchall()
    return [NodeRow(**{**row, "status": stored(WorkflowTaskStatus, row["status"])}) for row in rows]


async def family(conn: AsyncConnection[Any], workflow_id: str) -> list[WorkflowRow]:
    """The workflow and those of its sub-workflow nodes, parents first."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("handles/family"), {"workflow_id": workflow_id, "depth": DEEPEST})
        rows = await cursor.fetchall()
    if not rows:
        raise NoSuchWorkflow(workflow_id)
    return [WorkflowRow(**{**row, "status": stored(WorkflowStatus, row["status"])}) for row in rows]


def _stored(row: Sequence[Any]) -> StoredNode:
    index, node_id, node_type, task_name, key, status, result = row
    return StoredNode(index, node_id, node_type, task_name, key, stored(WorkflowTaskStatus, status), result)
