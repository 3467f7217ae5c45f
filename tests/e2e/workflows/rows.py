"""Workflows written with plain SQL, so that a test decides in which moment the worker finds them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from psycopg import AsyncConnection

from tests.factories import given_node, given_task, given_workflow


async def given_flow(db: AsyncConnection[Any], *tasks: tuple[str, dict[str, Any]], **columns: Any) -> list[str]:
    """A running workflow of nodes without edges, each ENQUEUED with its task; the ids of workflow and tasks. All of it
    becomes visible at the same moment."""
    async with db.transaction():
        flow = await given_workflow(db, status="RUNNING", open_nodes=len(tasks))
        ids = []
        for index, (name, kwargs) in enumerate(tasks):
            text = json.dumps(kwargs)
            ids.append(await given_task(db, task_name=name, kwargs=text, workflow_id=flow, **columns))
            await given_node(db, flow, task_index=index, task_name=name, status="ENQUEUED", task_id=ids[-1])
        return [flow, *ids]


@asynccontextmanager
async def nodes_locked(url: str, *task_ids: str) -> AsyncIterator[AsyncConnection[Any]]:
    """Somebody has the nodes of these tasks: they can be claimed, but not started, until the block ends. The
    connection is in the transaction that holds them."""
    async with await AsyncConnection.connect(url) as conn:
        await conn.execute(
            "SELECT FROM horsies_workflow_tasks WHERE task_id = ANY(%s) FOR NO KEY UPDATE", [list(task_ids)]
        )
        yield conn
        await conn.commit()


async def node_of(db: AsyncConnection[Any], task_id: str) -> dict[str, Any]:
    """Every column of the task's node."""
    cursor = await db.execute("SELECT to_jsonb(n) FROM horsies_workflow_tasks n WHERE task_id = %s", [task_id])
    row = await cursor.fetchone()
    assert row is not None, f"no node has the task {task_id}"
    return dict(row[0])


async def flow_status(db: AsyncConnection[Any], workflow_id: str) -> str:
    row = await (await db.execute("SELECT status FROM horsies_workflows WHERE id = %s", [workflow_id])).fetchone()
    assert row is not None, f"there is no workflow {workflow_id}"
    return str(row[0])
