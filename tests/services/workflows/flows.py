"""Workflows written as a start writes them, and their tasks ended as a worker ends them, without one."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from horsies.core.models.workflow.plan import NodePlan, WorkflowPlan
from horsies.core.types.status import TaskStatus
from horsies.core.workflows.layout import TreePosition, lay_out, write_layout

Db = AsyncConnection[Any]

OK = '{"ok":1}'


def node(node_id: str, *after: int, **more: Any) -> NodePlan:
    """A task that waits for these."""
    known = {"node_type": "TASK", "task_name": "t", "queue_name": "default", "priority": 50, "dependencies": after}
    return NodePlan(node_id, **{**known, **more})


def child_node(node_id: str, *after: int, key: str = "child", **more: Any) -> NodePlan:
    """A node that is a workflow."""
    return node(node_id, *after, node_type="SUBWORKFLOW", sub_workflow_key=key, queue_name=None, priority=None, **more)


def plan(*nodes: NodePlan, **more: Any) -> WorkflowPlan:
    return WorkflowPlan(**{"name": "wf", "definition_key": "wf", "nodes": nodes, **more})


async def started(db: Db, *nodes: NodePlan, good_until: datetime | None = None, **more: Any) -> str:
    """A workflow of these nodes; its id."""
    place = TreePosition(workflow_id := str(uuid.uuid4()), workflow_id)
    assert await write_layout(db, lay_out(plan(*nodes, **more), place, good_until=good_until))
    return workflow_id


async def end_task_of(
    db: Db,
    workflow_id: str,
    index: int,
    status: TaskStatus = TaskStatus.COMPLETED,
    result: str | None = OK,
    *,
    seconds_ago: float = 3600.0,
) -> str:
    """Let the task of a node come to its end, so long ago, and nobody notice; its id."""
    row = await (
        await db.execute(
            """
            UPDATE horsies_tasks t
            SET status = %(status)s::text, claimed = FALSE, result = %(result)s, updated_at = at,
                completed_at = CASE WHEN %(status)s::text = 'COMPLETED' THEN at END,
                failed_at = CASE WHEN %(status)s::text = 'FAILED' THEN at END
            FROM horsies_workflow_tasks n, LATERAL (SELECT now() - %(age)s * interval '1 s') AS _(at)
            WHERE t.id = n.task_id AND n.workflow_id = %(workflow)s AND n.task_index = %(index)s
            RETURNING t.id
            """,
            {"status": status.value, "result": result, "age": seconds_ago, "workflow": workflow_id, "index": index},
        )
    ).fetchone()
    assert row is not None, f"node {index} has no task"
    return str(row[0])


async def states(db: Db, workflow_id: str) -> tuple[str, str]:
    """The workflow's state, and those of its nodes in their order, a letter each: P R E U(nning) C F S."""
    letters = {"RUNNING": "U"}
    cursor = await db.execute(
        "SELECT status FROM horsies_workflow_tasks WHERE workflow_id = %s ORDER BY task_index", [workflow_id]
    )
    nodes = "".join(letters.get(row[0], row[0][0]) for row in await cursor.fetchall())
    row = await (await db.execute("SELECT status FROM horsies_workflows WHERE id = %s", [workflow_id])).fetchone()
    assert row is not None
    return str(row[0]), nodes


async def node_row(db: Db, workflow_id: str, index: int) -> dict[str, Any]:
    """Every column of one node."""
    cursor = await db.execute(
        "SELECT to_jsonb(n) FROM horsies_workflow_tasks n WHERE workflow_id = %s AND task_index = %s",
        [workflow_id, index],
    )
    row = await cursor.fetchone()
    assert row is not None
    return dict(row[0])


async def child_of(db: Db, workflow_id: str, index: int) -> str:
    return str((await node_row(db, workflow_id, index))["sub_workflow_id"])


async def count_tasks_of(db: Db, workflow_id: str) -> int:
    cursor = await db.execute("SELECT count(*) FROM horsies_tasks WHERE workflow_id = %s", [workflow_id])
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])
