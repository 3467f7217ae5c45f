"""The broker's operations on stale and overdue tasks (R-91 to R-93)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import BrokerErrorCode, PostgresConfig
from horsies.core.models.recovery import RecoveryConfig
from horsies.core.store import tasks
from horsies.core.store.tasks import Claimant, ClaimOrder
from horsies.core.tasks.moves import Claim, Complete
from horsies.core.types.status import TaskStatus
from tests.app_support import an_app
from tests.audit import audit, transactions
from tests.factories import given_heartbeat, given_task, given_worker, task_row
from tests.recovery_support import options_with
from tests.services.test_pool import refusing_port

CLAIMED, RUNNING = TaskStatus.CLAIMED, TaskStatus.RUNNING
CRASH_IS_RETRIED = options_with("WORKER_CRASHED")

Db = AsyncConnection[Any]


@pytest.fixture
def db(clean_db: Db) -> Db:
    return clean_db


@pytest.fixture
def broker(module_url: str) -> Iterator[PostgresBroker]:
    broker = PostgresBroker(PostgresConfig(database_url=module_url))
    yield broker
    broker.close()


async def silent(db: Db, status: TaskStatus, seconds: float, **columns: Any) -> str:
    task_id = await given_task(db, status=status, **columns)
    since = "claimed_at = now() - %(s)s * interval '1 s'"
    if status is RUNNING:
        since += ", started_at = now() - %(s)s * interval '1 s'"
    text = f"UPDATE horsies_tasks SET {since} WHERE id = %(id)s"  # noqa: S608
    await db.execute(text.encode(), {"s": seconds, "id": task_id})
    return task_id


async def status(db: Db, task_id: str) -> str:
    return str((await task_row(db, task_id))["status"])


async def test_r91_r92_stale_running_tasks_are_listed(db: Db, broker: PostgresBroker) -> None:
    task_id = await silent(
        db, RUNNING, 130, task_name="n", worker_hostname="h", worker_pid=7, worker_process_name="child-7"
    )
    beating = await silent(db, RUNNING, 500)
    await given_heartbeat(db, beating, "runner")
    await silent(db, RUNNING, 110)
    await silent(db, CLAIMED, 500)
    answer = await broker.get_stale_tasks()
    row = await task_row(db, task_id)
    assert answer.ok_value == [
        {
            "id": task_id,
            "task_name": "n",
            "worker_hostname": "h",
            "worker_pid": 7,
            "worker_process_name": "child-7",
            "last_heartbeat": None,
            "started_at": datetime.fromisoformat(row["started_at"]),
        }
    ]
    assert len((await broker.get_stale_tasks(stale_threshold_minutes=1)).unwrap()) == 2
    assert (await broker.get_stale_tasks(5)).unwrap() == []
    assert await status(db, task_id) == "RUNNING"


async def test_r91_the_newest_heartbeat_is_listed(db: Db, broker: PostgresBroker) -> None:
    task_id = await silent(db, RUNNING, 7_200)
    await db.execute(
        "INSERT INTO horsies_heartbeats (task_id, sender_id, role, sent_at)"
        " SELECT %s, 's', 'runner', now() - (60 + n) * interval '1 min' FROM generate_series(0, 3) AS n",
        [task_id],
    )
    [row] = (await broker.get_stale_tasks()).unwrap()
    cursor = await db.execute("SELECT max(sent_at) FROM horsies_heartbeats")
    assert (row["last_heartbeat"],) == await cursor.fetchone()


async def test_r91_marking_stale_tasks_as_failed_retries_what_may_be_retried(db: Db, broker: PostgresBroker) -> None:
    failed = await silent(db, RUNNING, 301)
    retried = await silent(db, RUNNING, 301, task_options=CRASH_IS_RETRIED, max_retries=3)
    fresh, claimed = await silent(db, RUNNING, 299), await silent(db, CLAIMED, 9_999)
    answer = await broker.mark_stale_tasks_as_failed()
    assert answer.ok_value == 2
    found = [await status(db, task_id) for task_id in (failed, retried, fresh, claimed)]
    assert found == ["FAILED", "PENDING", "RUNNING", "CLAIMED"]
    assert (await broker.mark_stale_tasks_as_failed(stale_threshold_ms=1_000)).unwrap() == 1
    assert await status(db, fresh) == "FAILED"


async def test_r91_requeueing_stale_claims_tells_how_many_went_back(db: Db, broker: PostgresBroker) -> None:
    stale, fresh = await silent(db, CLAIMED, 121), await silent(db, CLAIMED, 119)
    overdue = await silent(db, CLAIMED, 121, good_until="2020-01-01")
    running = await silent(db, RUNNING, 9_999)
    answer = await broker.requeue_stale_claimed()
    assert answer.ok_value == 1
    found = [await status(db, task_id) for task_id in (stale, fresh, overdue, running)]
    assert found == ["PENDING", "CLAIMED", "EXPIRED", "RUNNING"]
    assert (await broker.requeue_stale_claimed(stale_threshold_ms=1_000)).unwrap() == 1


async def test_r91_overdue_tasks_are_listed(db: Db, broker: PostgresBroker) -> None:
    await given_task(db)
    await given_task(db, good_until="2100-01-01")
    await given_task(db, status=CLAIMED, good_until="2020-01-01")
    newer, older = [
        await given_task(db, task_name="n", queue_name="q", good_until=when) for when in ("2021-01-01", "2020-01-01")
    ]
    rows = (await broker.get_expired_tasks()).unwrap()
    assert [row["id"] for row in rows] == [older, newer]
    assert set(rows[0]) == {"id", "task_name", "queue_name", "good_until", "expired_for"}
    assert (rows[0]["task_name"], rows[0]["queue_name"], rows[0]["good_until"].year) == ("n", "q", 2020)
    assert rows[0]["expired_for"] > rows[1]["expired_for"] > timedelta(days=365)
    assert await status(db, older) == "PENDING"


async def test_r91_the_sync_twins(db: Db, broker: PostgresBroker) -> None:
    running, claimed = await silent(db, RUNNING, 600), await silent(db, CLAIMED, 600)
    await given_task(db, good_until="2020-01-01")
    assert len(broker.get_stale_tasks_sync(stale_threshold_minutes=5).unwrap()) == 1
    assert broker.mark_stale_tasks_as_failed_sync(stale_threshold_ms=300_000).unwrap() == 1
    assert broker.requeue_stale_claimed_sync(stale_threshold_ms=120_000).unwrap() == 1
    assert len(broker.get_expired_tasks_sync().unwrap()) == 1
    assert [await status(db, task_id) for task_id in (running, claimed)] == ["FAILED", "PENDING"]


async def test_r91_they_work_whatever_the_switches_say(db: Db, module_url: str) -> None:
    running, claimed = await silent(db, RUNNING, 600), await silent(db, CLAIMED, 600)
    off = RecoveryConfig(auto_requeue_stale_claimed=False, auto_fail_stale_running=False)
    with an_app(module_url, recovery=off) as app:
        assert (await app.get_broker().mark_stale_tasks_as_failed()).unwrap() == 1
        assert (await app.get_broker().requeue_stale_claimed()).unwrap() == 1
    assert [await status(db, task_id) for task_id in (running, claimed)] == ["FAILED", "PENDING"]


@pytest.mark.parametrize(("patience_ms", "handled"), [(300_000, 1), (500_000, 0)])
async def test_r91_a_result_being_written_has_the_configured_finalizing_threshold(
    db: Db, module_url: str, patience_ms: int, handled: int
) -> None:
    task_id = await silent(db, RUNNING, 600)
    await db.execute("UPDATE horsies_tasks SET finalizing_at = now() - interval '400 s' WHERE id = %s", [task_id])
    with an_app(module_url, recovery=RecoveryConfig(finalizing_stale_threshold_ms=patience_ms)) as app:
        broker = app.get_broker()
        assert len((await broker.get_stale_tasks(1)).unwrap()) == handled
        assert (await broker.mark_stale_tasks_as_failed(1_000)).unwrap() == handled


async def test_r91_r63_enrolled_tasks_and_patient_workers_do_not_hold_up_a_call_by_hand(
    db: Db, broker: PostgresBroker
) -> None:
    patient = {"running_stale_threshold_ms": 7_200_000, "claimed_stale_threshold_ms": 3_600_000}
    await given_worker(db, "w1", recovery=Jsonb(patient))
    for of in (RUNNING, CLAIMED):
        await silent(db, of, 600)
        await silent(db, of, 600, claimed_by_worker_id="gone", recovery_enrolled=True)
    assert len((await broker.get_stale_tasks(5)).unwrap()) == 2
    assert (await broker.mark_stale_tasks_as_failed()).unwrap() == 2
    assert (await broker.requeue_stale_claimed()).unwrap() == 2


async def test_r91_a_call_by_hand_works_in_bounded_steps_too(db: Db, broker: PostgresBroker) -> None:
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claim_seq, started_at)"
        " SELECT n, 't', 'RUNNING', TRUE, 'w1', 1, now() - interval '1 h' FROM generate_series(1, 1001) AS n"
    )
    await audit(db, horsies_tasks="UPDATE")
    assert (await broker.mark_stale_tasks_as_failed()).unwrap() == 1_001
    assert await transactions(db) == [500, 500, 1]


async def test_r92_a_database_failure_is_a_value() -> None:
    broker = PostgresBroker(PostgresConfig(database_url=f"postgresql://u@127.0.0.1:{refusing_port()}/x"))
    try:
        for answer in (
            await broker.get_stale_tasks(),
            await broker.mark_stale_tasks_as_failed(),
            await broker.requeue_stale_claimed(),
            await broker.get_expired_tasks(),
            broker.get_expired_tasks_sync(),
        ):
            assert answer.is_err()
            assert answer.err_value.code in (BrokerErrorCode.SCHEMA_INIT_FAILED, BrokerErrorCode.DB_OPERATION_FAILED)
    finally:
        await broker.close_async()


@pytest.mark.parametrize("threshold", [-1, float("inf"), float("nan")])
async def test_r91_a_threshold_that_is_no_duration_is_an_error_value(broker: PostgresBroker, threshold: float) -> None:
    assert (await broker.get_stale_tasks(threshold)).is_err()
    assert (await broker.requeue_stale_claimed(threshold)).is_err()  # type: ignore[arg-type]


async def test_r93_old_heartbeats_can_be_deleted_by_hand(db: Db, broker: PostgresBroker) -> None:
    """And what is left still counts."""
    beating, quiet = await silent(db, RUNNING, 600), await silent(db, RUNNING, 600)
    await given_heartbeat(db, beating, "runner")
    for task_id in (beating, quiet):
        await given_heartbeat(db, task_id, "runner", sent_at="2020-01-01")
    cursor = await db.execute("DELETE FROM horsies_heartbeats WHERE sent_at < now() - interval '1 day'")
    assert cursor.rowcount == 2
    assert [row["id"] for row in (await broker.get_stale_tasks(5)).unwrap()] == [quiet]


async def test_r93_a_task_can_be_repaired_with_plain_sql(db: Db, broker: PostgresBroker) -> None:
    """The columns of a requeue, written by hand: it can be claimed again, and its old worker is fenced off."""
    task_id = await silent(db, RUNNING, 600)
    await db.execute(
        "UPDATE horsies_tasks SET status = 'PENDING', claimed = FALSE, claimed_at = NULL, claimed_by_worker_id = NULL,"
        " claim_expires_at = NULL, started_at = NULL, finalizing_at = NULL, recovery_enrolled = FALSE WHERE id = %s",
        [task_id],
    )
    assert (await broker.get_stale_tasks(1)).unwrap() == []
    order = ClaimOrder(["default"], [1], [None], 1, 1, None, True, [])
    [claimed] = await tasks.claim(db, Claimant("w2", timedelta(minutes=1), False), order)
    assert (claimed.id, claimed.claim_seq) == (task_id, 2)
    assert await tasks.apply(db, "w1", [Complete(Claim(task_id, 1), "{}")]) == set()
