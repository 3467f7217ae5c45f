"""The read model of command line and metrics, and the questions about workers (M-41, M-45, M-47)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

import pytest
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.types.json import Jsonb

from horsies import monitoring
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.monitoring.cluster import Snapshot
from horsies.core.models.monitoring.tasks import MonitoringErrorCode
from horsies.core.monitoring import snapshot
from horsies.core.schema.install import SCHEMA_VERSION
from horsies.core.store import monitoring as rows
from horsies.core.types.status import TaskStatus
from tests.conftest import fresh_database
from tests.factories import given_task, given_worker, given_worker_state, given_workflow

P, C, R, DONE, FAILED = (TaskStatus(name) for name in ("PENDING", "CLAIMED", "RUNNING", "COMPLETED", "FAILED"))


async def fill(url: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as db:
        await given_task(db, enqueued_at="2020-01-01T00:00:00Z")
        await given_task(db, task_name="b")
        await given_task(db, task_name="b", enqueued_at="2999-01-01T00:00:00Z")
        await given_task(db, enqueued_at="2999-01-01T00:00:00Z", next_retry_at="2999-01-01T00:00:00Z")
        await given_task(db, queue_name="slow", status=C)
        await given_task(db, queue_name="slow", status=R)
        await given_task(db, queue_name="slow", status=R, task_name="b")
        for seconds in (5, 10, 70, 3_700):
            await given_task(db, id=f"ended {seconds}", status=DONE)
        await given_task(db, id="ended 20", status=FAILED, queue_name="slow", error_code="NO")
        await db.execute(
            "UPDATE horsies_tasks SET completed_at = now() - split_part(id, ' ', 2)::int * interval '1 s'"
            " WHERE id LIKE 'ended%'"
        )
        await given_worker(db, "w1", queues=["default", "idle"], metadata=Jsonb({"task_names": ["a_task"]}))
        await given_worker_state(
            db, "w1", queue_max_concurrency=Jsonb({"default": 7}), tasks_running=1, snapshot_at="2020-01-01T00:00:00Z"
        )
        await given_worker_state(
            db, "w1", queue_max_concurrency=Jsonb({"default": 9}), tasks_running=2, cpu_percent=12.5
        )
        await given_worker(db, "gone", queues=["slow"], last_heartbeat_at="2020-01-01T00:00:00Z")
        await given_workflow(db, status="RUNNING")
        await given_workflow(db, status="COMPLETED", completed_at="now")
        await db.execute("INSERT INTO horsies_schedule_state (schedule_name) VALUES ('nightly')")


@pytest.fixture(scope="module")
def broker(server_url: str, template: str) -> Iterator[PostgresBroker]:
    with fresh_database(server_url, template) as url:
        asyncio.run(fill(url))
        broker = PostgresBroker(PostgresConfig(database_url=url))
        try:
            yield broker
        finally:
            broker.close()


async def taken(broker: PostgresBroker) -> Snapshot:
    return (await monitoring.take_snapshot(broker)).unwrap()


async def test_m45_queues_with_depth_age_pace_and_limits(broker: PostgresBroker) -> None:
    queues = {queue.name: queue for queue in (await taken(broker)).queues}
    assert list(queues) == ["default", "idle", "slow"]
    default = queues["default"]
    assert (default.waiting, default.due, default.scheduled) == (4, 2, 2)
    assert default.oldest_due_seconds is not None and default.oldest_due_seconds > 86_400
    assert (default.ended_last_minute, default.max_concurrency, default.priority) == (2, 9, 100)
    slow = queues["slow"]
    assert (slow.claimed, slow.running, slow.waiting, slow.oldest_due_seconds) == (1, 2, 0, None)
    assert (slow.ended_last_minute, slow.max_concurrency) == (1, None)
    assert [queue.live_workers for queue in queues.values()] == [1, 1, 0]


async def test_m45_counts_of_what_has_not_ended_are_exact_and_of_the_rest_of_the_last_hour(
    broker: PostgresBroker,
) -> None:
    found = await taken(broker)
    assert {(count.status, count.queue, count.task_name): count.count for count in found.task_counts} == {
        (P, "default", "a_task"): 2,
        (P, "default", "b"): 2,
        (C, "slow", "a_task"): 1,
        (R, "slow", "a_task"): 1,
        (R, "slow", "b"): 1,
        (DONE, "default", "a_task"): 3,
        (FAILED, "slow", "a_task"): 1,
    }
    assert found.ended_window_seconds == 3_600


async def test_m45_of_many_that_ended_the_pace_of_the_last_is_taken(
    broker: PostgresBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "MOST_ENDED", 2)  # those of 5 and 10 seconds ago
    found = await taken(broker)
    assert 10 <= found.ended_window_seconds < 60
    [default] = [queue for queue in found.queues if queue.name == "default"]
    assert default.ended_last_minute == round(2 * 60 / found.ended_window_seconds)


async def test_m45_workers_schedules_workflows_and_the_server(broker: PostgresBroker) -> None:
    found = await taken(broker)
    assert [(worker.worker_id, worker.is_live) for worker in found.workers] == [("w1", True), ("gone", False)]
    assert [schedule.name for schedule in found.schedules] == ["nightly"]
    assert found.workflow_counts == {"RUNNING": 1}
    facts = found.database
    assert (facts.schema_version, facts.notify) == (SCHEMA_VERSION, "always")
    assert 0 <= facts.notification_queue_usage <= 1 and facts.sessions >= 1 and facts.listeners == 0
    assert json.loads(json.dumps(monitoring.to_jsonable(found)))["database"]["notify"] == "always"


async def test_m45_listeners_are_counted(broker: PostgresBroker) -> None:
    await broker.ping_workers_async(None, 0.01)  # opens the listener of this process
    assert (await taken(broker)).database.listeners == 1


@pytest.mark.usefixtures("superuser")
async def test_m45_who_may_not_see_other_sessions_does_not_know_who_listens(broker: PostgresBroker) -> None:
    async with (
        await AsyncConnection.connect(broker.config.dsn()) as other,
        await AsyncConnection.connect(broker.config.dsn()) as db,
        db.transaction(force_rollback=True),
    ):
        assert other.info.transaction_status is TransactionStatus.IDLE
        await db.execute("CREATE ROLE somebody")
        await db.execute("GRANT SELECT ON horsies_meta TO somebody")
        await db.execute("SET LOCAL ROLE somebody")
        facts = await rows.database(db)
        assert (facts["listeners"], facts["sessions"] >= 2) == (None, True)


async def test_m47_workers_with_what_they_said_last(broker: PostgresBroker) -> None:
    workers = {worker.worker_id: worker for worker in (await monitoring.list_workers(broker)).unwrap()}
    assert (workers["w1"].tasks_running, workers["w1"].cpu_percent, workers["w1"].processes) == (2, 12.5, 2)
    assert workers["w1"].is_live and workers["w1"].task_names == ("a_task",) and workers["w1"].queues[1] == "idle"
    assert not workers["gone"].is_live and workers["gone"].silence_seconds > 86_400
    assert (workers["gone"].snapshot_at, workers["gone"].task_names) == (None, None)


async def test_m47_the_history_of_a_worker_can_be_spread_over_a_time(broker: PostgresBroker) -> None:
    url = broker.config.database_url.get_secret_value()
    async with await AsyncConnection.connect(url, autocommit=True) as db:
        await db.execute(
            "INSERT INTO horsies_worker_states (worker_id, snapshot_at, hostname, pid, processes, tasks_running)"
            " SELECT 'long', now() - n * interval '30 s' - interval '1 s', 'h', 1, 1, n FROM generate_series(0, 2879) n"
        )
    for hours, parts in ((1, 60), (24, 96)):
        found = await monitoring.get_worker_history(broker, "long", limit=parts, window_seconds=hours * 3600)
        points = found.unwrap()
        assert len(points) == parts and points[-1].tasks_running == 0, "the newest is the last"
        steps = [(after.snapshot_at - before.snapshot_at).total_seconds() for before, after in pairwise(points)]
        assert {round(step) for step in steps} == {hours * 3600 / parts}
    assert (await monitoring.get_worker_history(broker, "long", window_seconds=0)).unwrap() == ()
    wrong = await monitoring.get_worker_history(broker, "long", window_seconds=-1)
    assert wrong.unwrap_err().code is MonitoringErrorCode.INVALID_ARGUMENT


async def test_m47_the_history_of_a_worker_is_a_chart(broker: PostgresBroker) -> None:
    points = (await monitoring.get_worker_history(broker, "w1")).unwrap()
    assert [point.tasks_running for point in points] == [1, 2]
    assert [p.tasks_running for p in (await monitoring.get_worker_history(broker, "w1", limit=1)).unwrap()] == [2]
    assert (await monitoring.get_worker_history(broker, "none")).unwrap() == ()
    wrong = await monitoring.get_worker_history(broker, "w1", limit=0)
    assert wrong.unwrap_err().code is MonitoringErrorCode.INVALID_ARGUMENT


async def test_m47_active_workers_and_who_answers(broker: PostgresBroker) -> None:
    active = (await monitoring.list_active_workers(broker)).unwrap()
    assert {worker.worker_id: worker.is_stale for worker in active} == {"w1": False, "gone": True}
    report = (await monitoring.ping(broker, timeout_seconds=0.05)).unwrap()
    assert report.workers == () and report.silent == ("gone", "w1") and report.database_latency_ms > 0
    wrong = await monitoring.list_active_workers(broker, threshold_seconds=-1)
    assert not wrong.unwrap_err().retryable


def test_m45_an_empty_table_is_a_snapshot_too() -> None:
    empty = snapshot.assemble(
        waiting=[], oldest_due={}, in_flight=[], ended=[], workers=[], schedules=[], workflow_counts={},
        database={"taken_at": None, "server_version": "18", "schema_version": 1, "notify": "off",
                  "notification_queue_usage": 0.0, "sessions": 1, "listeners": 0, "oldest_transaction_seconds": None},
        configured=snapshot.Configured({"default": snapshot.QueueSettings(100, 5)}),
    )  # fmt: skip
    [queue] = empty.queues
    assert (queue.name, queue.max_concurrency, queue.waiting) == ("default", 5, 0)
    assert empty.ended_window_seconds == timedelta(hours=1).total_seconds()
