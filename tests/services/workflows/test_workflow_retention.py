"""Retention and whole trees of workflows, as the engine writes them (R-80, R-83)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.db.pool import Pool
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.models.workflow.plan import MapOptions
from horsies.core.recovery.reconcile import Reconciler
from horsies.core.recovery.retention import Retention
from horsies.core.types.status import TaskStatus
from horsies.core.workflows import control
from tests.services.workflows.flows import Db, child_node, child_of, end_task_of, node, plan, started, states

TABLES = ("horsies_tasks", "horsies_workflows", "horsies_workflow_tasks")


@pytest.fixture
def db(clean_db: AsyncConnection[Any]) -> Db:
    return clean_db


async def settle(pool: Pool) -> None:
    await Reconciler(pool, None, timedelta(0)).run()


async def a_tree(db: Db, pool: Pool) -> str:
    """A workflow with a child and a map, all of it old, and a task of an earlier run; its last node is enqueued."""
    mapped = node("m", 0, node_type="MAP", map_options=MapOptions(0, "x"))
    children = {2: plan(node("inside"))}
    root = await started(db, node("list"), mapped, child_node("sub"), node("last", 1), children=children)
    await end_task_of(db, root, 0, TaskStatus.FAILED, None)
    await settle(pool)
    assert await control.retry_nodes(pool, root, ["list"], None)
    await end_task_of(db, root, 0, result='{"ok":[1,2]}')
    await end_task_of(db, await child_of(db, root, 2), 0)
    await settle(pool)
    for index in (4, 5):
        await end_task_of(db, root, index)
    await settle(pool)
    assert await states(db, root) == ("RUNNING", "CCCECC")
    return root


async def grow_old(db: Db) -> None:
    times = {"horsies_tasks": ("completed_at", "failed_at", "updated_at"), "horsies_workflows": ("completed_at",)}
    for table, columns in times.items():
        for column in columns:
            text = f"UPDATE {table} SET {column} = '2020-01-01' WHERE {column} IS NOT NULL"  # noqa: S608
            await db.execute(text.encode())


async def left(db: Db) -> dict[str, int]:
    found = {}
    for table in TABLES:
        [(count,)] = await (await db.execute(f"SELECT count(*) FROM {table}".encode())).fetchall()  # noqa: S608
        found[table.removeprefix("horsies_")] = count
    return found


def retention(pool: Pool) -> Retention:
    return Retention(pool, RecoveryConfig(), WorkerRecoveryConfig())


async def test_r83_a_tree_stays_as_long_as_its_root_is_open(db: Db, clean_pool: Pool) -> None:
    """All but the tasks of a child that has ended: its nodes hold the results."""
    root = await a_tree(db, clean_pool)
    await grow_old(db)
    before = await left(db)
    assert await retention(clean_pool).prune()
    assert await left(db) == {**before, "tasks": before["tasks"] - 1}
    assert before == {"tasks": 6, "workflows": 2, "workflow_tasks": 7}
    await end_task_of(db, root, 3)
    await settle(clean_pool)
    assert await states(db, root) == ("COMPLETED", "CCCCCC")


async def test_r80_r83_then_all_of_it_goes(db: Db, clean_pool: Pool) -> None:
    root = await a_tree(db, clean_pool)
    await end_task_of(db, root, 3)
    await settle(clean_pool)
    await grow_old(db)
    assert await retention(clean_pool).prune()
    assert await left(db) == {"tasks": 0, "workflows": 0, "workflow_tasks": 0}
