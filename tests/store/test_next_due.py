"""When the next task of some queues falls due, as a worker asks before it sleeps (T-80)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from horsies.core.store import tasks
from horsies.core.tasks.moves import Retry
from tests.store.test_arrows import Db, given_task, now, running
from tests.store.test_lifecycle import crash

HOUR = 3600.0


async def given_later(
    db: Db, seconds: float, *, queue: str = "default", priority: int = 100, **columns: object
) -> None:
    due = await now(db) + timedelta(seconds=seconds)
    await given_task(db, enqueued_at=due, queue_name=queue, priority=priority, **columns)


async def test_t80_it_is_the_first_of_all_queues_and_priorities(db: Db) -> None:
    await given_later(db, 300)
    await given_later(db, 200, priority=1)
    await given_later(db, 100, queue="other", priority=50)
    assert await tasks.next_due(db, ["default", "other", "empty"], HOUR) == pytest.approx(100, abs=30)
    assert await tasks.next_due(db, ["default"], HOUR) == pytest.approx(200, abs=30)


async def test_t80_what_is_due_already_does_not_count(db: Db) -> None:
    await given_task(db)
    assert await tasks.next_due(db, ["default"], HOUR) is None
    await given_later(db, 100)
    assert await tasks.next_due(db, ["default"], HOUR) == pytest.approx(100, abs=30)


async def test_t80_what_is_too_far_or_waits_no_more_does_not_count(db: Db) -> None:
    await given_later(db, 2 * HOUR)
    await given_later(db, 100, status="CANCELLED")
    await given_later(db, 100, queue="other")
    assert await tasks.next_due(db, ["default"], HOUR) is None
    assert await tasks.next_due(db, ["default"], 3 * HOUR) == pytest.approx(2 * HOUR, abs=30)


async def test_t80_a_retry_counts(db: Db) -> None:
    claim = await running(db)
    await tasks.apply(db, "me", [Retry(claim, 100.0, crash(claim))])
    assert await tasks.next_due(db, ["default"], HOUR) == pytest.approx(100, abs=30)
