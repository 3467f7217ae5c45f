"""Running a task before it is due (M-49d, L-21b)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import monitoring
from horsies.core.brokers.actions import TaskActionErrorCode
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.types.status import TaskStatus
from tests.conftest import fresh_database
from tests.factories import given_task, given_workflow, task_row
from tests.services.test_pool import refusing_port
from tests.support import eventually

Db = AsyncConnection[Any]
LATER = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)
Code = TaskActionErrorCode


@pytest.fixture(scope="module")
def broker(server_url: str, template: str) -> Iterator[PostgresBroker]:
    with fresh_database(server_url, template) as url:
        broker = PostgresBroker(PostgresConfig(database_url=url))
        try:
            yield broker
        finally:
            broker.close()


@pytest.fixture
async def db(broker: PostgresBroker) -> AsyncIterator[Db]:
    async with await AsyncConnection.connect(broker.config.dsn(), autocommit=True) as conn:
        await conn.execute("DELETE FROM horsies_tasks")
        await conn.execute("DELETE FROM horsies_workflows")
        yield conn


async def due_of(db: Db, task_id: str) -> datetime:
    """When a claim would take it."""
    cursor = await db.execute(
        "SELECT GREATEST(enqueued_at, next_retry_at), now() FROM horsies_tasks WHERE id = %s", [task_id]
    )
    row = await cursor.fetchone()
    assert row is not None
    due: datetime = row[0]
    return due


def is_now(at: datetime) -> bool:
    return abs(datetime.now(UTC) - at) < timedelta(minutes=5)


@pytest.mark.parametrize(
    "waits",
    [
        {"enqueued_at": LATER},
        {"enqueued_at": LATER, "next_retry_at": LATER, "retry_count": 2, "max_retries": 5},
        {"next_retry_at": LATER, "retry_count": 1, "max_retries": 5},
    ],
    ids=["not due", "a retry", "a retry of older code"],
)
async def test_m49d_l21b_a_waiting_task_is_due_at_once_and_nothing_else_changes(
    broker: PostgresBroker, db: Db, waits: dict[str, Any]
) -> None:
    task_id = await given_task(db, good_until=LATER + timedelta(days=1), failed_reason="r", claim_seq=3, **waits)
    before = await task_row(db, task_id)
    done = (await monitoring.run_task_now(broker, task_id)).unwrap()
    assert (done.task_id, done.was_due_at) == (task_id, LATER)
    assert is_now(await due_of(db, task_id))
    after = await task_row(db, task_id)
    times = {"enqueued_at", "next_retry_at", "updated_at"}
    assert {name for name in after if after[name] != before[name]} <= times
    assert (after["next_retry_at"] is None) == ("next_retry_at" not in waits), "a retry is still one"
    error = (await monitoring.run_task_now(broker, task_id)).unwrap_err()
    assert (error.code, error.current_status) == (Code.TASK_IS_DUE, TaskStatus.PENDING)


@pytest.mark.parametrize("status", [one for one in TaskStatus if one is not TaskStatus.PENDING])
async def test_m49d_what_does_not_wait_is_refused(broker: PostgresBroker, db: Db, status: TaskStatus) -> None:
    task_id = await given_task(db, status=status, enqueued_at=LATER)
    before = await task_row(db, task_id)
    error = (await monitoring.run_task_now(broker, task_id)).unwrap_err()
    assert (error.code, error.current_status, error.task_id) == (Code.TASK_NOT_WAITING, status, task_id)
    assert status.value in error.message and await task_row(db, task_id) == before


async def test_m49d_what_would_not_be_claimed_is_refused(broker: PostgresBroker, db: Db) -> None:
    late = await given_task(db, enqueued_at=LATER, good_until="2020-01-01T00:00:00Z")
    error = (await monitoring.run_task_now(broker, late)).unwrap_err()
    assert error.code is Code.TASK_NOT_WAITING and "deadline" in error.message
    for absent in ("nothing", "x" * 99):
        assert (await monitoring.run_task_now(broker, absent)).unwrap_err().code is Code.TASK_NOT_FOUND


async def test_m49d_a_task_of_a_workflow_is_run_now_unless_that_is_paused_or_has_ended(
    broker: PostgresBroker, db: Db
) -> None:
    waits = {"enqueued_at": LATER, "next_retry_at": LATER, "retry_count": 1, "max_retries": 3}
    running = await given_task(db, workflow_id=await given_workflow(db, status="RUNNING"), **waits)
    assert (await monitoring.run_task_now(broker, running)).unwrap().was_due_at == LATER
    for status in ("PAUSED", "CANCELLED"):
        flow = await given_workflow(db, status=status)
        held = await given_task(db, workflow_id=flow, is_held=status == "PAUSED", **waits)
        error = (await monitoring.run_task_now(broker, held)).unwrap_err()
        assert error.code is Code.TASK_IS_HELD and flow in error.message and status in error.message
        assert await due_of(db, held) == LATER


async def test_m49d_a_task_whose_workflow_is_gone_is_held(broker: PostgresBroker, db: Db) -> None:
    task_id = await given_task(db, workflow_id="nowhere", enqueued_at=LATER)
    error = (await monitoring.run_task_now(broker, task_id)).unwrap_err()
    assert error.code is Code.TASK_IS_HELD and "its workflow nowhere is gone" in error.message


@pytest.mark.parametrize("channel", ["task_new", "task_queue_slow"])
async def test_l21b_the_bell_rings_for_it(broker: PostgresBroker, db: Db, channel: str) -> None:
    task_id = await given_task(db, queue_name="slow", enqueued_at=LATER)
    await db.execute(f"LISTEN {channel}".encode())
    (await monitoring.run_task_now(broker, task_id)).unwrap()
    assert [each.payload async for each in db.notifies(timeout=10, stop_after=1)] == [task_id]


async def somebody_waits(db: Db) -> bool:
    blocked = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return bool(await (await db.execute(blocked)).fetchall())


async def test_l21b_it_waits_for_whoever_changes_the_task_and_then_leaves_it_alone(
    broker: PostgresBroker, db: Db
) -> None:
    """A worker may claim, or somebody cancel, the task at the same moment: one of them comes first."""
    claim = "status = 'CLAIMED', claimed = TRUE, claimed_by_worker_id = 'w', claim_seq = 1, enqueued_at = now()"
    for status, change in [("CANCELLED", "status = 'CANCELLED'"), ("CLAIMED", claim)]:
        task_id = await given_task(db, enqueued_at=LATER)
        async with await AsyncConnection.connect(broker.config.dsn()) as other:
            await other.execute(f"UPDATE horsies_tasks SET {change} WHERE id = %s".encode(), [task_id])  # noqa: S608
            asking = asyncio.create_task(monitoring.run_task_now(broker, task_id))
            await eventually(lambda: somebody_waits(db), what="it waits for the lock")
            await other.commit()
        error = (await asking).unwrap_err()
        assert (error.code, error.current_status) == (Code.TASK_NOT_WAITING, TaskStatus(status))
        assert (await task_row(db, task_id))["status"] == status


async def test_l21b_whoever_asked_first_and_was_let_in_second_changes_nothing(broker: PostgresBroker, db: Db) -> None:
    """The time of his statement is before that of the other's change: the task is due nevertheless."""
    task_id = await given_task(db, enqueued_at=LATER)
    async with await AsyncConnection.connect(broker.config.dsn()) as other:
        await other.execute("SELECT FROM horsies_tasks WHERE id = %s FOR UPDATE", [task_id])
        asking = asyncio.create_task(monitoring.run_task_now(broker, task_id))
        await eventually(lambda: somebody_waits(db), what="it waits for the lock")
        await other.execute("UPDATE horsies_tasks SET enqueued_at = clock_timestamp() WHERE id = %s", [task_id])
        await other.commit()
    assert (await asking).unwrap_err().code is Code.TASK_IS_DUE


async def test_m49d_m48_a_cancel_at_the_same_moment_always_wins(broker: PostgresBroker, db: Db) -> None:
    ids = [await given_task(db, enqueued_at=LATER) for _ in range(30)]
    asked = [act(broker, task_id) for task_id in ids for act in (monitoring.run_task_now, monitoring.cancel_task)]
    done: list[Any] = await asyncio.gather(*asked)
    for ran, cancelled in zip(done[::2], done[1::2], strict=True):
        cancelled.unwrap()
        assert ran.is_ok() or ran.unwrap_err().code is Code.TASK_NOT_WAITING
    for task_id in ids:
        assert (await task_row(db, task_id))["status"] == "CANCELLED"


async def test_m49d_many_at_once_change_it_once(broker: PostgresBroker, db: Db) -> None:
    task_id = await given_task(db, enqueued_at=LATER)
    done: list[Any] = await asyncio.gather(*[monitoring.run_task_now(broker, task_id) for _ in range(5)])
    assert sum(one.is_ok() for one in done) == 1
    assert {one.unwrap_err().code for one in done if one.is_err()} == {Code.TASK_IS_DUE}


async def test_m49d_a_database_that_is_away_is_a_value() -> None:
    broker = PostgresBroker(PostgresConfig(database_url=f"postgresql://u:p@127.0.0.1:{refusing_port()}/x"))
    try:
        error = (await monitoring.run_task_now(broker, "x")).unwrap_err()
        assert (error.code, error.retryable) == (Code.DB_OPERATION_FAILED, True)
    finally:
        await broker.close_async()
