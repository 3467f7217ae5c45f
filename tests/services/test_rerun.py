"""Sending a task again (M-49)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies import monitoring
from horsies.core.brokers.actions import TaskActionErrorCode
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.sending import RetryPolicy, TaskOptions
from horsies.core.types.status import TaskStatus
from tests.conftest import fresh_database
from tests.factories import count_tasks, given_task, given_workflow, task_row
from tests.services.test_pool import refusing_port

FAILED, CANCELLED, EXPIRED = TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.EXPIRED
OPTIONS = TaskOptions(RetryPolicy.exponential(1, max_retries=2, auto_retry_for=["X"]), timeout_ms=500).to_json() or ""


@pytest.fixture(scope="module")
def broker(server_url: str, template: str) -> Iterator[PostgresBroker]:
    with fresh_database(server_url, template) as url:
        broker = PostgresBroker(PostgresConfig(database_url=url))
        try:
            yield broker
        finally:
            broker.close()


@pytest.fixture
async def db(broker: PostgresBroker) -> AsyncIterator[AsyncConnection]:
    async with await AsyncConnection.connect(broker.config.dsn(), autocommit=True) as conn:
        await conn.execute("DELETE FROM horsies_tasks")
        yield conn


async def test_m49_the_new_task_is_the_old_one_again_under_a_new_id(
    broker: PostgresBroker, db: AsyncConnection
) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    old_id = await given_task(
        db, status=FAILED, task_name="pay", queue_name="slow", priority=7, args="[1]", kwargs='{"a":2}', retry_count=2,
        max_retries=2, task_options=OPTIONS, flags=Jsonb({"resilient": True}), idempotency_key="k", error_code="X",
        claimed_by_worker_id="w1", started_at="now", failed_at="now", result="{}", failed_reason="r", claim_seq=4,
        enqueue_sha="s", good_until=later, enqueued_at="2020-01-01T00:00:00Z", sent_at="2020-01-01T00:00:00Z",
    )  # fmt: skip
    before = await task_row(db, old_id)
    done = (await monitoring.rerun_task(broker, old_id)).unwrap()
    assert done.rerun_of == old_id != done.task_id
    assert await task_row(db, old_id) == before, "the old row is unchanged"
    new = await task_row(db, done.task_id)
    copied = ("task_name", "queue_name", "priority", "args", "kwargs", "max_retries", "flags", "good_until")
    assert {name: new[name] for name in copied} == {name: before[name] for name in copied}
    afresh = {"status": "PENDING", "retry_count": 0, "claimed": False, "claim_seq": 0, "start_failures": 0}
    assert {name: new[name] for name in afresh} == afresh
    gone = [
        "result",
        "error_code",
        "failed_reason",
        "claimed_by_worker_id",
        "started_at",
        "failed_at",
    ]
    gone.append("enqueue_sha")
    assert {name: new[name] for name in gone} == dict.fromkeys(gone)
    assert new["idempotency_key"] == f"rerun of {old_id}", "not that of the old one"
    assert datetime.fromisoformat(new["enqueued_at"]) > datetime.now(UTC) - timedelta(minutes=5)
    options = json.loads(new["task_options"])
    assert options.pop("rerun_of") == old_id and options == json.loads(OPTIONS)
    assert TaskOptions.from_json(new["task_options"]) == TaskOptions.from_json(OPTIONS)


@pytest.mark.parametrize("status", [FAILED, CANCELLED, EXPIRED])
@pytest.mark.parametrize("options", [None, "null", "{}", '{"trace": {"traceparent": "x"}}'])
async def test_m49_every_end_without_success_can_be_sent_again(
    broker: PostgresBroker, db: AsyncConnection, status: TaskStatus, options: str | None
) -> None:
    old_id = await given_task(db, status=status, task_options=options, good_until="2020-01-01T00:00:00Z")
    done = (await monitoring.rerun_task(broker, old_id)).unwrap()
    new = await task_row(db, done.task_id)
    assert json.loads(new["task_options"]) == {"rerun_of": old_id}
    assert new["good_until"] is None, "a deadline that has passed would end it at once"


async def test_m49_a_rerun_that_failed_can_be_sent_again_too(broker: PostgresBroker, db: AsyncConnection) -> None:
    first = await given_task(db, status=FAILED)
    second = (await monitoring.rerun_task(broker, first)).unwrap().task_id
    await db.execute("UPDATE horsies_tasks SET status = 'FAILED' WHERE id = %s", [second])
    third = (await monitoring.rerun_task(broker, second)).unwrap().task_id
    assert json.loads((await task_row(db, third))["task_options"]) == {"rerun_of": second}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (TaskStatus.COMPLETED, TaskActionErrorCode.TASK_HAS_COMPLETED),
        (TaskStatus.PENDING, TaskActionErrorCode.TASK_HAS_NOT_ENDED),
        (TaskStatus.CLAIMED, TaskActionErrorCode.TASK_HAS_NOT_ENDED),
        (TaskStatus.RUNNING, TaskActionErrorCode.TASK_HAS_NOT_ENDED),
    ],
)
async def test_m49_what_succeeded_or_has_not_ended_is_refused(
    broker: PostgresBroker, db: AsyncConnection, status: TaskStatus, code: TaskActionErrorCode
) -> None:
    task_id = await given_task(db, status=status)
    error = (await monitoring.rerun_task(broker, task_id)).unwrap_err()
    assert (error.code, error.current_status, error.task_id) == (code, status, task_id)
    assert await count_tasks(db) == 1


async def test_m49_tasks_of_workflows_and_tasks_that_do_not_exist_are_refused(
    broker: PostgresBroker, db: AsyncConnection
) -> None:
    workflow_id = await given_workflow(db)
    task_id = await given_task(db, status=FAILED, workflow_id=workflow_id)
    error = (await monitoring.rerun_task(broker, task_id)).unwrap_err()
    assert error.code is TaskActionErrorCode.TASK_IS_WORKFLOW_TASK and workflow_id in error.message
    for absent in ("nothing", "x" * 99):
        error = (await monitoring.rerun_task(broker, absent)).unwrap_err()
        assert error.code is TaskActionErrorCode.TASK_NOT_FOUND
    assert await count_tasks(db) == 1


@pytest.mark.parametrize("channel", ["task_new", "task_queue_slow"])
async def test_m49_the_bell_rings_for_it(broker: PostgresBroker, db: AsyncConnection, channel: str) -> None:
    old_id = await given_task(db, status=FAILED, queue_name="slow")
    await db.execute(f"LISTEN {channel}".encode())
    done = (await monitoring.rerun_task(broker, old_id)).unwrap()
    assert [each.payload async for each in db.notifies(timeout=10, stop_after=1)] == [done.task_id]


async def test_m49_many_at_once_are_many_tasks(broker: PostgresBroker, db: AsyncConnection) -> None:
    old_id = await given_task(db, status=FAILED, idempotency_key="k")
    done: list[Any] = await asyncio.gather(*[monitoring.rerun_task(broker, old_id) for _ in range(5)])
    assert len({each.unwrap().task_id for each in done}) == 5 and await count_tasks(db) == 6


async def test_m49_a_database_that_is_away_is_a_value() -> None:
    broker = PostgresBroker(PostgresConfig(database_url=f"postgresql://u:p@127.0.0.1:{refusing_port()}/x"))
    try:
        error = (await monitoring.rerun_task(broker, "x")).unwrap_err()
        assert (error.code, error.retryable) == (TaskActionErrorCode.DB_OPERATION_FAILED, True)
    finally:
        await broker.close_async()
