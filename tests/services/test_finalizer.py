"""What the finalizer says became of a task is what stands in the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.db import BY_INDEX, Pool, make_pool
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.recovery import WorkerResilienceConfig
from horsies.core.store.tasks import Claimed
from horsies.core.tasks.moves import Claim, Complete, Fail, Move, Requeue, Retry
from horsies.core.types.status import TaskStatus
from horsies.core.worker import finalize
from horsies.core.worker.finalize import ConnectionChoice, Finalizer
from horsies.core.worker.in_hand import HeldTask, InHand
from tests.factories import given_task, task_row
from tests.support import eventually


def held(task_id: str) -> HeldTask:
    row = Claimed(0, 1, None, task_id, 1, "a_task", "default", None, None, None, 0, 3, True, None)
    return HeldTask(row, is_async=False, token=1, claim=Claim(task_id, 1))


async def test_l22_a_retry_that_has_become_a_failure_is_told_as_one(
    clean_db: AsyncConnection[Any], clean_pool: Pool
) -> None:
    """Or the log would promise a retry that never comes."""
    running = {"status": TaskStatus.RUNNING, "started_at": "now", "claimed_at": "now", "max_retries": 3}
    late = await given_task(clean_db, good_until="2020-01-01", **running)
    early = await given_task(clean_db, **running)
    settled: dict[str, tuple[Move, bool]] = {}

    def note(held: HeldTask, move: Move, moved: bool) -> None:
        settled[held.id] = move, moved

    finalizer = Finalizer(ConnectionChoice(InHand(), clean_pool, clean_pool), "w1", WorkerResilienceConfig(), note)
    for task_id in (late, early):
        claim = Claim(task_id, 1)
        finalizer.put(held(task_id), Retry(claim, 5.0, Fail(claim, '{"err": {}}', "BUSY")))
    running_finalizer = asyncio.create_task(finalizer.run())
    try:
        await eventually(lambda: len(settled) == 2, what="both are written")
    finally:
        running_finalizer.cancel()
    assert {name: (type(move), moved) for name, (move, moved) in settled.items()} == {
        late: (Fail, True),
        early: (Retry, True),
    }
    assert [(await task_row(clean_db, task_id))["status"] for task_id in (late, early)] == ["FAILED", "PENDING"]


@asynccontextmanager
async def at_work(finalizer: Finalizer) -> AsyncIterator[None]:
    running = asyncio.create_task(finalizer.run())
    try:
        yield
    finally:
        running.cancel()


async def test_l34_an_end_that_was_held_up_is_tried_again_alone(db: AsyncConnection[Any], database_url: str) -> None:
    """Somebody keeps its row locked. Beside it, every batch would wait for the lock, and then each of its parts."""
    running = {"status": TaskStatus.RUNNING, "started_at": "now", "claimed_at": "now", "claimed_by_worker_id": "w1"}
    stuck, *others = [await given_task(db, claim_seq=1, **running) for _ in range(33)]
    settled: list[str] = []
    refused: list[str] = []
    url = PostgresConfig(database_url=database_url)
    pool = make_pool(url, min_size=1, max_size=2, options=f"{BY_INDEX} -c lock_timeout=50")
    finalizer = Finalizer(
        ConnectionChoice(InHand(), pool, pool),
        "w1",
        WorkerResilienceConfig(),
        lambda held, move, moved: settled.append(held.id),
        lambda held: refused.append(held.id),
    )
    try:
        async with await AsyncConnection.connect(database_url) as somebody:
            await somebody.execute("SELECT id FROM horsies_tasks WHERE id = %s FOR UPDATE", [stuck])
            finalizer.put(held(stuck), Complete(Claim(stuck, 1), '{"ok": 1}'))
            async with at_work(finalizer):
                await eventually(lambda: refused, what="it is held up")
            await eventually(lambda: finalizer._endings, what="it is in line again")
            for task_id in others:
                finalizer.put(held(task_id), Complete(Claim(task_id, 1), '{"ok": 1}'))
            async with at_work(finalizer):
                await eventually(lambda: len(settled) == len(others), what="the others are written")
        async with at_work(finalizer):
            await eventually(lambda: stuck in settled, what="it is written when the lock is gone")
    finally:
        await pool.close()
    ids = {"ids": others}
    cursor = await db.execute("SELECT count(DISTINCT xmin::text) FROM horsies_tasks WHERE id = ANY(%(ids)s)", ids)
    assert await cursor.fetchone() == (1,), "one transaction for all of them"


async def test_w25b_returns_to_the_queue_are_written_before_the_results_that_wait(
    clean_db: AsyncConnection[Any], clean_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others can run what is returned, but not while it waits behind many large results."""
    monkeypatch.setattr(finalize, "MAX_BATCH", 2)
    running = {"status": TaskStatus.RUNNING, "started_at": "now", "claimed_at": "now"}
    *ended, returned = [await given_task(clean_db, **running) for _ in range(6)]
    settled: list[str] = []
    finalizer = Finalizer(
        ConnectionChoice(InHand(), clean_pool, clean_pool),
        "w1",
        WorkerResilienceConfig(),
        lambda held, move, moved: settled.append(held.id) if moved else None,
    )
    for task_id in ended:
        finalizer.put(held(task_id), Complete(Claim(task_id, 1), '{"ok": 1}'))
    finalizer.put(held(returned), Requeue(Claim(returned, 1)))
    async with at_work(finalizer):
        await eventually(lambda: len(settled) == 6, what="all are written")
    assert settled[0] == returned and settled[1:] == ended
    assert (await task_row(clean_db, returned))["status"] == "PENDING"


async def test_l34_many_ends_are_written_beside_a_batch_that_waits_and_few_are_not(
    db: AsyncConnection[Any], database_url: str
) -> None:
    running = {"status": TaskStatus.RUNNING, "started_at": "now", "claimed_at": "now", "claimed_by_worker_id": "w1"}
    first, *others = [await given_task(db, claim_seq=1, **running) for _ in range(finalize.CROWD + 1)]
    settled: list[str] = []
    pool = make_pool(PostgresConfig(database_url=database_url), min_size=1, max_size=2, options=BY_INDEX)
    finalizer = Finalizer(
        ConnectionChoice(InHand(), pool, pool),
        "w1",
        WorkerResilienceConfig(),
        lambda held, move, moved: settled.append(held.id) if moved else None,
    )

    def end(task_id: str) -> None:
        finalizer.put(held(task_id), Complete(Claim(task_id, 1), '{"ok": 1}'))

    lanes = [asyncio.create_task(lane) for lane in (finalizer.run(), finalizer.run_beside())]
    try:
        async with await AsyncConnection.connect(database_url) as somebody:
            await somebody.execute("SELECT id FROM horsies_tasks WHERE id = %s FOR UPDATE", [first])
            end(first)
            await eventually(lambda: not finalizer._endings, what="the first lane has it, and waits")
            for task_id in others[:-1]:
                end(task_id)
            assert not finalizer._crowd.is_set(), "one less than many: the second lane sleeps on"
            end(others[-1])
            await eventually(lambda: len(settled) == len(others), what="the second lane has written the others")
        await eventually(lambda: first in settled, what="the lock is gone")
    finally:
        for lane in lanes:
            lane.cancel()
        await pool.close()
    ids = {"ids": others}
    cursor = await db.execute("SELECT count(DISTINCT xmin::text) FROM horsies_tasks WHERE id = ANY(%(ids)s)", ids)
    assert await cursor.fetchone() == (1,), "one transaction for all of them"
