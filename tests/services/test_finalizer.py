"""What the finalizer says became of a task is what stands in the database."""

from __future__ import annotations

import asyncio
from typing import Any

from psycopg import AsyncConnection

from horsies.core.db.pool import Pool
from horsies.core.models.recovery import WorkerResilienceConfig
from horsies.core.store.tasks import Claimed
from horsies.core.tasks.moves import Claim, Fail, Move, Retry
from horsies.core.types.status import TaskStatus
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
