"""What a worker asks before it sleeps: when the next task of some queues falls due (T-80), and what else lies ahead."""

from __future__ import annotations

from datetime import timedelta

import pytest

from horsies.core.store import tasks
from horsies.core.tasks.moves import Retry
from tests.factories import given_worker, given_workflow
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
    assert (await tasks.look_ahead(db, ["default", "other", "empty"], HOUR)).due_s == pytest.approx(100, abs=30)
    assert (await tasks.look_ahead(db, ["default"], HOUR)).due_s == pytest.approx(200, abs=30)


async def test_t80_what_is_due_already_does_not_count(db: Db) -> None:
    await given_task(db)
    assert (await tasks.look_ahead(db, ["default"], HOUR)).due_s is None
    await given_later(db, 100)
    assert (await tasks.look_ahead(db, ["default"], HOUR)).due_s == pytest.approx(100, abs=30)


async def test_t80_what_is_too_far_or_waits_no_more_does_not_count(db: Db) -> None:
    await given_later(db, 2 * HOUR)
    await given_later(db, 100, status="CANCELLED")
    await given_later(db, 100, queue="other")
    assert (await tasks.look_ahead(db, ["default"], HOUR)).due_s is None
    assert (await tasks.look_ahead(db, ["default"], 3 * HOUR)).due_s == pytest.approx(2 * HOUR, abs=30)


async def test_t80_a_retry_counts(db: Db) -> None:
    claim = await running(db)
    await tasks.apply(db, "me", [Retry(claim, 100.0, crash(claim))])
    assert (await tasks.look_ahead(db, ["default"], HOUR)).due_s == pytest.approx(100, abs=30)


async def test_w73_a_task_that_is_due_is_seen(db: Db) -> None:
    await given_later(db, 100)
    assert not (await tasks.look_ahead(db, ["default"], HOUR)).is_due
    await given_task(db, queue_name="other")
    assert not (await tasks.look_ahead(db, ["default"], HOUR)).is_due
    assert (await tasks.look_ahead(db, ["default", "other"], HOUR)).is_due


async def test_w73_w20_a_claim_whose_lease_has_run_out_is_seen_as_far_as_it_can_be_claimed(db: Db) -> None:
    await given_task(db, status="CLAIMED", claimed=True, claimed_by_worker_id="w", claim_expires_at="2999-01-01")
    paused = await given_workflow(db, status="PAUSED")
    lapsed = {"status": "CLAIMED", "claimed": True, "claimed_by_worker_id": "w", "claim_expires_at": "2020-01-01"}
    await given_task(db, workflow_id=paused, **lapsed)
    assert not (await tasks.look_ahead(db, ["default"], HOUR)).is_lapsed
    await given_task(db, **lapsed)
    assert not (await tasks.look_ahead(db, ["other"], HOUR)).is_lapsed
    assert (await tasks.look_ahead(db, ["default"], HOUR)).is_lapsed


async def test_w73_l07_r38_the_next_deadlines_are_seen_whatever_the_queue(db: Db) -> None:
    assert (await tasks.look_ahead(db))[3:5] == (None, None)
    later = await now(db) + timedelta(seconds=100)
    await given_task(db, good_until=later, queue_name="other")
    await given_workflow(db, status="RUNNING", good_until=later + timedelta(seconds=100))
    assert (await tasks.look_ahead(db))[3:5] == (pytest.approx(100, abs=30), pytest.approx(200, abs=30))
    await given_task(db, good_until=await now(db))
    await given_workflow(db, status="COMPLETED", good_until="2020-01-01")
    assert (await tasks.look_ahead(db))[3:5] == (0, pytest.approx(200, abs=30))
    await given_workflow(db, status="PAUSED", good_until="2020-01-01")
    assert (await tasks.look_ahead(db))[3:5] == (0, 0)


async def test_w73_workers_that_were_heard_of_lately_are_counted(db: Db) -> None:
    await given_worker(db, "w1")
    await given_worker(db, "w2", last_heartbeat_at="2020-01-01")
    assert (await tasks.look_ahead(db)).workers == 1
