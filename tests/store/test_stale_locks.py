"""Several who look for dead tasks at the same time: each task is handled once, and nobody waits for anybody (R-15). A
task that was found is taken only if nothing has been heard of it since.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.store import holds, recovery, tasks
from horsies.core.store.holds import Beat
from horsies.core.tasks.moves import Claim, Complete, Requeue
from horsies.core.types.status import TaskStatus
from tests.factories import given_heartbeat, given_task

POLICY, SWEEPING = RecoveryConfig(), WorkerRecoveryConfig()
CLAIMED, RUNNING = TaskStatus.CLAIMED, TaskStatus.RUNNING
LONG_AGO = "2020-01-01"

Db = AsyncConnection[Any]


async def test_r15_each_stale_task_is_handled_by_one(db: Db, database_url: str) -> None:
    ids = {await given_task(db, status=CLAIMED, claimed_at=LONG_AGO) for _ in range(4)}
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute("SET lock_timeout = '1s'")  # waiting would be the mistake
        found = await recovery.find_stale(db, CLAIMED, POLICY, SWEEPING)
        async with db.transaction(), other.transaction():
            mine = await recovery.lock_stale(db, found[:3])
            theirs = await recovery.lock_stale(other, found)
            assert mine == found[:3]
            assert theirs == found[3:]
            assert {task.task_id for task in (*mine, *theirs)} == ids
            assert await tasks.apply(other, "w1", [Requeue(task.claim) for task in theirs])
            assert await tasks.apply(db, "w1", [Requeue(task.claim) for task in mine])
    assert await recovery.find_stale(db, CLAIMED, POLICY, SWEEPING) == []
    assert await recovery.lock_stale(db, found) == []


async def test_r15_nobody_waits_for_rows_that_others_have(db: Db, database_url: str) -> None:
    await given_task(db, status=CLAIMED, claimed_at=LONG_AGO)
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute("SET lock_timeout = '1s'")
        async with db.transaction():
            await db.execute("SELECT 1 FROM horsies_tasks FOR UPDATE")
            found = await recovery.find_stale(other, CLAIMED, POLICY, SWEEPING)
            assert len(found) == 1
            assert await recovery.lock_stale(other, found) == []


async def beats(db: Db, claim: Claim) -> object:
    return await holds.heartbeat(db, "w1", "host", [Beat(claim, True, "s", 1)])


async def is_finalizing(db: Db, claim: Claim) -> object:
    return await holds.mark_finalizing(db, "w1", [claim])


async def ends(db: Db, claim: Claim) -> object:
    return await tasks.apply(db, "w1", [Complete(claim, "{}")])


async def is_claimed_anew(db: Db, claim: Claim) -> object:
    return await db.execute("UPDATE horsies_tasks SET claim_seq = claim_seq + 1")


async def is_claimed_by_another(db: Db, claim: Claim) -> object:
    return await db.execute("UPDATE horsies_tasks SET claimed_by_worker_id = 'w2'")


async def is_given_back(db: Db, claim: Claim) -> object:
    return await tasks.apply(db, "w1", [Requeue(claim)])


@pytest.mark.parametrize("last_beat", [None, LONG_AGO])
@pytest.mark.parametrize("event", [beats, is_finalizing, ends, is_claimed_anew, is_claimed_by_another, is_given_back])
async def test_r12_r14_r67_what_is_heard_of_between_the_look_and_the_lock_is_left(
    frozen: Db, event: Callable[[Db, Claim], Awaitable[object]], last_beat: str | None
) -> None:
    task_id = await given_task(frozen, status=RUNNING, claimed_at=LONG_AGO, started_at=LONG_AGO)
    if last_beat is not None:
        await given_heartbeat(frozen, task_id, "runner", sent_at=last_beat)
    [found] = await recovery.find_stale(frozen, RUNNING, POLICY, SWEEPING)
    assert await recovery.lock_stale(frozen, [found]) == [found]
    await event(frozen, found.claim)
    assert await recovery.lock_stale(frozen, [found]) == []


async def test_r14_an_old_mark_is_no_news(frozen: Db) -> None:
    await given_task(frozen, status=RUNNING, claimed_at=LONG_AGO, started_at=LONG_AGO, finalizing_at=LONG_AGO)
    [found] = await recovery.find_stale(frozen, RUNNING, POLICY, SWEEPING)
    assert await recovery.lock_stale(frozen, [found]) == [found]


async def test_r12_a_heartbeat_of_the_other_role_is_no_news(frozen: Db) -> None:
    task_id = await given_task(frozen, status=RUNNING, claimed_at=LONG_AGO, started_at=LONG_AGO)
    [found] = await recovery.find_stale(frozen, RUNNING, POLICY, SWEEPING)
    await given_heartbeat(frozen, task_id, "claimer")
    assert await recovery.lock_stale(frozen, [found]) == [found]
