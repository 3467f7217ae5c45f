"""Several who look for dead tasks at the same time: each task is handled once, and nobody waits for anybody (R-15)."""

from __future__ import annotations

from psycopg import AsyncConnection

from horsies.core.lifecycle.moves import Requeue
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.store import recovery, tasks
from horsies.core.types.status import TaskStatus
from tests.factories import given_task

POLICY, SWEEPING = RecoveryConfig(), WorkerRecoveryConfig()


async def test_r15_each_stale_task_is_handled_by_one(db: AsyncConnection, database_url: str) -> None:
    ids = {await given_task(db, status=TaskStatus.CLAIMED, claimed_at="2020-01-01") for _ in range(4)}
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute("SET lock_timeout = '1s'")  # waiting would be the mistake
        async with db.transaction(), other.transaction():
            mine = await recovery.lock_stale(db, TaskStatus.CLAIMED, POLICY, SWEEPING, most=3)
            theirs = await recovery.lock_stale(other, TaskStatus.CLAIMED, POLICY, SWEEPING)
            assert len(mine) == 3
            assert {task.task_id for task in (*mine, *theirs)} == ids
            assert len(theirs) == 1
            assert await tasks.apply(other, "w1", [Requeue(task.claim) for task in theirs])
            assert await tasks.apply(db, "w1", [Requeue(task.claim) for task in mine])
    assert await recovery.lock_stale(db, TaskStatus.CLAIMED, POLICY, SWEEPING) == []


async def test_r67_a_task_that_moved_meanwhile_is_not_stale_any_more(db: AsyncConnection, database_url: str) -> None:
    task_id = await given_task(db, status=TaskStatus.CLAIMED, claimed_at="2020-01-01")
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        async with db.transaction():
            assert len(await recovery.lock_stale(db, TaskStatus.CLAIMED, POLICY, SWEEPING)) == 1
            assert await recovery.lock_stale(other, TaskStatus.CLAIMED, POLICY, SWEEPING) == []
            await db.execute("UPDATE horsies_tasks SET claimed_at = now() WHERE id = %s", [task_id])
        assert await recovery.lock_stale(other, TaskStatus.CLAIMED, POLICY, SWEEPING) == []
