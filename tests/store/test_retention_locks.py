"""Retention beside others: it waits for nobody, one pruner at a time, and a task goes only with its node in hand."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import AsyncConnection

from horsies.core.store import retention
from horsies.core.store.retention import START
from horsies.core.types.status import TaskStatus
from tests.factories import given_heartbeat, given_node, given_task, given_worker, given_worker_state, given_workflow

AGE = timedelta(hours=1)
LONG_AGO = "2020-01-01"


async def test_d62_one_pruner_at_a_time(db: AsyncConnection, database_url: str) -> None:
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        async with db.transaction():
            assert await retention.try_lock(db)
            async with other.transaction():
                assert not await retention.try_lock(other)
        async with other.transaction():
            assert await retention.try_lock(other)


@pytest.mark.parametrize(("durable", "commit"), [(False, "off"), (True, "on")])
async def test_r84_what_a_crash_may_bring_back_does_not_wait_for_the_disk(
    db: AsyncConnection, durable: bool, commit: str
) -> None:
    async with db.transaction():
        await db.execute("SET LOCAL synchronous_commit = on")
        assert await retention.try_lock(db, durable=durable)
        assert await (await db.execute("SHOW synchronous_commit")).fetchone() == (commit,)


@pytest.mark.parametrize(
    "table",
    [
        "horsies_tasks",
        "horsies_workflow_tasks",
        "horsies_workflows",
        "horsies_heartbeats",
        "horsies_worker_states",
        "horsies_workers",
    ],
)
async def test_r84_what_somebody_has_locked_is_left_for_the_next_pass(
    db: AsyncConnection, database_url: str, table: str
) -> None:
    workflow_id = await given_workflow(db, status="FAILED", completed_at=LONG_AGO)
    task_id = await given_task(db, status=TaskStatus.FAILED, failed_at=LONG_AGO, workflow_id=workflow_id)
    await given_node(db, workflow_id, task_id=task_id)
    await given_heartbeat(db, task_id, "runner", sent_at=LONG_AGO)
    await given_worker_state(db, "w", snapshot_at=LONG_AGO)
    await given_worker(db, "w", last_heartbeat_at=LONG_AGO)
    kept = {"horsies_workflow_tasks": {"horsies_tasks", "horsies_workflow_tasks", "horsies_workflows"}}.get(
        table, {"horsies_workflows", "horsies_workflow_tasks"} if table == "horsies_workflows" else {table}
    )
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute("SET lock_timeout = '1s'")  # waiting would be the mistake
        async with db.transaction():
            await db.execute(f"SELECT 1 FROM {table} FOR UPDATE".encode())  # noqa: S608
            await prune_everything(other)
            assert await filled(db) == kept
        await prune_everything(other)
        assert await filled(db) == set()


async def prune_everything(conn: AsyncConnection) -> None:
    await retention.prune_tasks(conn, AGE, START)
    for _ in range(2):  # nodes first
        await retention.prune_workflows(conn, AGE, START)
    await retention.prune_heartbeats(conn, AGE, AGE)
    await retention.prune_worker_states(conn, AGE)
    await retention.prune_workers(conn)


async def filled(conn: AsyncConnection) -> set[str]:
    tables = ("tasks", "workflow_tasks", "workflows", "heartbeats", "worker_states", "workers")
    found = set()
    for name in tables:
        cursor = await conn.execute(f"SELECT 1 FROM horsies_{name} LIMIT 1".encode())  # noqa: S608
        if await cursor.fetchone():
            found.add(f"horsies_{name}")
    return found
