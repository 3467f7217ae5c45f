"""What is wrong now (M-45d): facts from rows, in words, the worst first; nothing is said where nothing is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies import monitoring
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.types.status import TaskStatus
from tests.factories import given_rollup, given_task, given_worker, given_workflow

AN_HOUR_AGO = "now() - interval '61 minutes'"


async def alerts_of(broker: PostgresBroker) -> list[monitoring.Alert]:
    return list((await monitoring.list_alerts(broker)).unwrap())


async def said(broker: PostgresBroker) -> list[tuple[str, str]]:
    return [(alert.level, alert.message) for alert in await alerts_of(broker)]


async def ago(db: AsyncConnection, seconds: float) -> Any:
    [(moment,)] = await (await db.execute("SELECT now() - %s * interval '1 s'", [seconds])).fetchall()
    return moment


async def test_m45d_nothing_is_wrong(broker: PostgresBroker, db: AsyncConnection) -> None:
    await given_worker(db, "w1", queues=["default"])
    await given_task(db, status=TaskStatus.RUNNING, started_at=await ago(db, 30))
    await given_task(db, status=TaskStatus.COMPLETED, completed_at=await ago(db, 30))
    await given_task(db, status=TaskStatus.FAILED, failed_at=await ago(db, 4_000))
    assert await said(broker) == []


async def test_m45d_tasks_that_failed_expired_or_were_lost_in_the_last_hour(
    broker: PostgresBroker, db: AsyncConnection
) -> None:
    await given_task(db, status=TaskStatus.FAILED, failed_at=await ago(db, 10))  # the statistics come later
    await given_task(db, status=TaskStatus.EXPIRED)
    assert await said(broker) == [
        ("warn", "1 task failed in the last hour"),
        ("warn", "1 task expired in the last hour, without a run"),
    ]
    lost = {"error_code": "WORKER_CRASHED", "failed": 2}
    await given_rollup(db, queue_name="q", task_name="mail", **lost)
    await given_rollup(db, queue_name="q", task_name="mail", error_code="X", failed=3, start_at=await ago(db, 1_800))
    await given_rollup(db, queue_name="q", task_name="mail", error_code="Y", failed=9, start_at=await ago(db, 3_700))
    assert await said(broker) == [
        ("bad", "2 tasks were lost with a worker that crashed in the last hour"),
        ("warn", "5 tasks failed in the last hour"),
        ("warn", "1 task expired in the last hour, without a run"),
    ]


async def test_m45d_workflows_that_stand_still_or_failed(broker: PostgresBroker, db: AsyncConnection) -> None:
    stopped = await given_workflow(
        db, name="order", status="PAUSED", on_error="PAUSE", error="{}", error_code="BANK_DOWN", paused_at="now"
    )
    failed = await given_workflow(db, name="refund", status="FAILED", completed_at=await ago(db, 10), error_code="X")
    await given_workflow(db, name="child", status="FAILED", completed_at="now", parent_workflow_id=failed)
    await given_workflow(db, name="old", status="FAILED", completed_at=await ago(db, 4_000))
    await given_workflow(db, name="mine", status="PAUSED", paused_at="now")
    found = await alerts_of(broker)
    assert [(one.level, one.message, one.workflow_id) for one in found] == [
        ("bad", "1 workflow paused by an error: order with BANK_DOWN", stopped),
        ("warn", "1 workflow paused", None),
        ("warn", "1 workflow failed in the last hour: refund with X", failed),
    ]


async def test_m45d_schedules_that_are_paused(broker: PostgresBroker, db: AsyncConnection) -> None:
    for name, paused in (("hourly", False), ("nightly", True)):
        await db.execute(
            "INSERT INTO horsies_schedules (name, definition, paused) VALUES (%s, %s, %s)", [name, Jsonb({}), paused]
        )
    assert await said(broker) == [("warn", "1 schedule paused: nightly")]


@pytest.mark.parametrize(
    ("seconds", "usual_bucket", "message"),
    [
        (840, None, "letter has been running for 14 min, and none has ended in the last day"),
        (500, None, None),
        (840, 30, "letter has been running for 14 min, usually at most 32 s"),
        (840, 39, None),  # ten minutes are usual
        (59, 1, None),
    ],
)
async def test_m45d_a_task_that_runs_for_much_longer_than_its_name_does(
    broker: PostgresBroker, db: AsyncConnection, seconds: float, usual_bucket: int | None, message: str | None
) -> None:
    await given_worker(db, "w1", queues=["default"])
    slow = await given_task(db, task_name="letter", status=TaskStatus.RUNNING, started_at=await ago(db, seconds))
    await given_task(db, task_name="letter", status=TaskStatus.RUNNING, started_at=await ago(db, 1))
    if usual_bucket is not None:
        counts = [0] * usual_bucket + [100]
        await given_rollup(db, span=3_600, queue_name="default", task_name="letter", run_counts=counts)
    found = [(one.kind, one.message, one.task_id) for one in await alerts_of(broker)]
    assert found == ([] if message is None else [("long run", message, slow)])


async def test_m45d_tasks_of_a_dead_worker_are_not_slow_but_stale(broker: PostgresBroker, db: AsyncConnection) -> None:
    await given_worker(db, "w1", queues=["default"], last_heartbeat_at=await ago(db, 3_600))
    await given_task(db, task_name="letter", status=TaskStatus.RUNNING, started_at=await ago(db, 3_700))
    assert [(one.level, one.kind, one.subject) for one in await alerts_of(broker)] == [
        ("bad", "stale claims", "w1"),
        ("warn", "silent", "w1"),
    ]


async def test_m45d_a_queue_says_that_nobody_knows_its_oldest_task(broker: PostgresBroker, db: AsyncConnection) -> None:
    await db.execute("INSERT INTO horsies_known_names (names_hash, names) VALUES ('h', ARRAY['mail.send'])")
    await given_worker(db, "w1", queues=["mail"], names_hash="h")
    await given_task(db, task_name="mail.send", queue_name="mail", enqueued_at=await ago(db, 5))
    oldest = await given_task(db, task_name="invoice.remind", queue_name="mail", enqueued_at=await ago(db, 102))
    [alert] = await alerts_of(broker)
    assert (alert.level, alert.kind, alert.subject, alert.task_id) == ("bad", "unknown task", "mail", oldest)
    told = "queue mail: the oldest task has been due for 1 min 42 s: no live worker of the queue knows invoice.remind"
    assert alert.message == told


async def test_m45d_a_part_that_cannot_be_read_is_said(broker: PostgresBroker, db: AsyncConnection) -> None:
    await db.execute("DROP TABLE horsies_rollup")
    await given_task(db, status=TaskStatus.FAILED, failed_at=await ago(db, 10))
    found = await said(broker)
    assert ("warn", "1 task failed in the last hour") in found
    assert any(message.startswith("statistics could not be read") for _, message in found)


async def test_m45d_a_task_that_a_worker_has_claimed_does_not_run(broker: PostgresBroker, db: AsyncConnection) -> None:
    await given_worker(db, "w1", queues=["default"])
    await given_task(db, task_name="letter", status=TaskStatus.CLAIMED)
    await given_task(db, task_name="bill", status=TaskStatus.RUNNING, started_at="now", finalizing_at="now")
    assert await said(broker) == []
