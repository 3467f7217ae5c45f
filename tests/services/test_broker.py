"""The broker's other answers: schema on first use (T-12), task info (T-63), cancel (M-48), pings and states (M-41), and
a broker that meets a bad database or a fork (T-67).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies import monitoring
from horsies.core.brokers.actions import TaskActionErrorCode, TaskCancelled
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.db.failures import is_transient
from horsies.core.models.broker import BrokerErrorCode, PostgresConfig
from horsies.core.models.tasks import OperationalErrorCode, OutcomeCode, TaskOptions, TaskResult
from horsies.core.producer.envelope import payload_for, with_sha
from horsies.core.producer.send import TaskHandle
from horsies.core.schema.install import SCHEMA_VERSION
from horsies.core.store import tasks
from horsies.core.store.tasks import Claimant, ClaimOrder
from horsies.core.tasks.moves import Claim, Complete, Expire, Fail, Requeue, Retry
from horsies.core.types.status import TaskAttemptOutcome, TaskStatus
from tests.factories import count_tasks, end_task, given_attempt, given_task, task_row
from tests.services.test_pool import refusing_port
from tests.services.test_waiter import sessions
from tests.support import eventually
from tests.unit.test_bridge import in_a_fork

PENDING, CLAIMED, RUNNING = TaskStatus.PENDING, TaskStatus.CLAIMED, TaskStatus.RUNNING


@contextlib.contextmanager
def a_broker(url: str, **settings: Any) -> Iterator[PostgresBroker]:
    broker = PostgresBroker(PostgresConfig(database_url=url, **settings))
    try:
        yield broker
    finally:
        broker.close()


@pytest.fixture
def broker(database_url: str) -> Iterator[PostgresBroker]:
    with a_broker(database_url) as broker:
        yield broker


async def test_t12_the_first_use_creates_the_schema(empty_database_url: str) -> None:
    with a_broker(empty_database_url) as broker:
        task_id = broker.enqueue("anything").unwrap()
        assert broker.get_task_info(task_id).unwrap() is not None


def test_t14a_numbers_that_postgresql_cannot_take_are_refused_before_a_statement_has_them(
    broker: PostgresBroker,
) -> None:
    for numbers in ({"priority": 3_000_000_000}, {"priority": 0}, {"delay": 10**12}, {"delay": -1}):
        error = broker.enqueue("anything", **numbers).unwrap_err()
        said = "a whole number" if "priority" in numbers else "from 0 to 315360000 seconds"
        assert next(iter(numbers)) in error.message and said in error.message and not error.retryable
    for minutes in (1e300, 10**9, -1):
        assert "a threshold must be a duration" in broker.get_stale_tasks_sync(minutes).unwrap_err().message
    assert broker.get_worker_state_history("nobody", limit=10**30).unwrap() == []
    assert broker.enqueue("anything", priority=1, delay=315_360_000).is_ok()


async def test_t12_a_producer_does_not_change_the_notify_mode(database_url: str, db: AsyncConnection) -> None:
    with a_broker(database_url, notify="off") as broker:
        assert (await broker.ensure_schema_initialized()).is_ok()
    mode = await db.execute("SELECT value FROM horsies_meta WHERE key = 'notify'")
    assert await mode.fetchone() == ("always",)


async def test_t12_a_read_only_database_is_refused_with_a_clear_error(database_url: str, db: AsyncConnection) -> None:
    await db.execute(f"ALTER DATABASE {db.info.dbname} SET default_transaction_read_only = on")
    with a_broker(database_url) as broker:
        failed = (await broker.ensure_schema_initialized()).unwrap_err()
        assert (failed.code, failed.retryable) == (BrokerErrorCode.SCHEMA_INIT_FAILED, False)
        assert "read-only" in failed.message
        assert broker.enqueue("x").unwrap_err().code is BrokerErrorCode.SCHEMA_INIT_FAILED
        error = broker.get_result("x").err_value
        assert error.error_code is OperationalErrorCode.BROKER_ERROR and "read-only" in str(error.message)


async def test_t12_a_failed_first_use_is_tried_again(database_url: str, db: AsyncConnection) -> None:
    await db.execute("UPDATE horsies_meta SET value = '999' WHERE key IN ('breaking_version', 'schema_version')")
    with a_broker(database_url) as broker:
        assert "too new" in broker.enqueue("x").unwrap_err().message
        version = str(SCHEMA_VERSION)
        await db.execute(
            "UPDATE horsies_meta SET value = %s WHERE key IN ('breaking_version', 'schema_version')", [version]
        )
        assert broker.enqueue("x").is_ok()


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (psycopg.OperationalError("connection failed: Connection refused"), True),
        (psycopg.OperationalError("the connection is lost"), True),
        (psycopg.errors.ConnectionTimeout("timeout expired"), True),
        (psycopg.errors.SerializationFailure(), True),
        (psycopg.errors.DeadlockDetected(), True),
        (psycopg.errors.AdminShutdown(), True),
        (psycopg.errors.CannotConnectNow(), True),
        (psycopg.errors.ConnectionException(), True),
        (psycopg.OperationalError('FATAL: password authentication failed for user "x"'), False),
        (psycopg.errors.DiskFull(), False),
        (psycopg.errors.UndefinedTable(), False),
        (psycopg.errors.UniqueViolation(), False),
        (ValueError("no"), False),
    ],
)
def test_t66_retryable_means_lost_connections_and_conflicts(error: Exception, transient: bool) -> None:
    assert is_transient(error) is transient


async def test_t66_a_database_that_is_away_is_a_retryable_value() -> None:
    with a_broker(f"postgresql://u:sesame@127.0.0.1:{refusing_port()}/x") as broker:
        answers: list[Any] = [
            broker.ping_database(),
            await broker.ping_database_async(),
            broker.get_task_info("x"),
            broker.list_worker_states(),
            broker.ping_workers(timeout_seconds=0.1),
            broker.enqueue("x"),
            await broker.ensure_schema_initialized(),
        ]
        for answer in answers:
            error = answer.unwrap_err()
            assert (error.code, error.retryable) == (BrokerErrorCode.SCHEMA_INIT_FAILED, True)
            assert "Connection refused" in error.message and "sesame" not in str(error)


async def test_t66_a_database_lost_in_the_middle_is_db_operation_failed(
    broker: PostgresBroker, db: AsyncConnection
) -> None:
    broker.ping_database().unwrap()
    await db.execute("ALTER TABLE horsies_worker_states RENAME TO gone")
    error = broker.list_worker_states().unwrap_err()
    assert (error.code, error.retryable) == (BrokerErrorCode.DB_OPERATION_FAILED, False)
    assert "horsies_worker_states" in error.message


async def test_t67_a_broken_bridge_is_loop_runner_failed(
    broker: PostgresBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_threads(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("threading.Thread.start", no_threads)
        assert broker.ping_database().unwrap_err().code is BrokerErrorCode.LOOP_RUNNER_FAILED
        assert (await broker.get_worker_state_async("w")).unwrap_err().code is BrokerErrorCode.LOOP_RUNNER_FAILED
        assert broker.get_result("x").err_value.error_code is OperationalErrorCode.BROKER_ERROR
        assert broker.cancel_task("x").unwrap_err().code is TaskActionErrorCode.DB_OPERATION_FAILED
    assert broker.ping_database().is_ok()


async def test_t03_a_task_can_be_sent_by_name_alone(broker: PostgresBroker, db: AsyncConnection) -> None:
    task_id = (
        await broker.enqueue_async(
            "elsewhere",
            [1, "two"],
            {"three": None},
            priority=7,
            delay=60,
            options=TaskOptions(timeout_ms=2000),
            flags={"f": True},
        )
    ).unwrap()
    row = await task_row(db, task_id)
    assert (json.loads(row["args"]), json.loads(row["kwargs"])) == ([1, "two"], {"three": None})
    assert (row["priority"], json.loads(row["task_options"]), row["flags"]) == (7, {"timeout_ms": 2000}, {"f": True})
    assert broker.enqueue("x", [float("nan")]).unwrap_err().code is BrokerErrorCode.INVALID_JSON_PAYLOAD
    assert broker.enqueue("x", priority=101).unwrap_err().code is BrokerErrorCode.ENQUEUE_FAILED


async def test_t54_a_payload_can_be_enqueued_again_under_its_id(broker: PostgresBroker, db: AsyncConnection) -> None:
    payload = payload_for("elsewhere", [1]).unwrap()
    task_id = broker.enqueue(payload).unwrap()
    assert broker.enqueue(payload, task_id=task_id).unwrap() == task_id
    other = payload_for("elsewhere", [2]).unwrap()
    assert broker.enqueue(other, task_id=task_id).unwrap_err().code is BrokerErrorCode.PAYLOAD_MISMATCH
    altered = dataclasses.replace(payload, args_json="[3]")
    assert broker.enqueue(altered).unwrap_err().code is BrokerErrorCode.PAYLOAD_MISMATCH
    assert broker.enqueue(with_sha(altered)).is_ok()
    assert await count_tasks(db) == 2


async def test_t63_info_describes_the_row(broker: PostgresBroker, db: AsyncConnection) -> None:
    claimed_at = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    task_id = await given_task(
        db,
        status=RUNNING,
        task_name="t",
        priority=3,
        retry_count=1,
        max_retries=4,
        claimed_at=claimed_at,
        started_at=claimed_at + timedelta(seconds=1),
        good_until=claimed_at + timedelta(days=1),
        finalizing_at=claimed_at + timedelta(seconds=2),
        flags=Jsonb({"f": False}),
        worker_hostname="h",
        worker_pid=12,
        worker_process_name="p",
        result='{"ok": 1}',
        failed_reason="because",
    )
    for answer in (broker.get_task_info(task_id), await broker.get_task_info_async(task_id)):
        info = answer.unwrap()
        assert info is not None
        assert (info.task_id, info.task_name, info.status, info.queue_name, info.priority) == (
            task_id, "t", RUNNING, "default", 3,
        )  # fmt: skip
        assert (info.retry_count, info.max_retries, info.flags, info.claimed_by_worker_id) == (1, 4, {"f": False}, "w1")
        assert (info.worker_hostname, info.worker_pid, info.worker_process_name) == ("h", 12, "p")
        assert (info.claimed_at, info.started_at) == (claimed_at, claimed_at + timedelta(seconds=1))
        assert (info.good_until, info.finalizing_at) == (
            claimed_at + timedelta(days=1), claimed_at + timedelta(seconds=2),
        )  # fmt: skip
        assert info.sent_at.tzinfo is not None
        assert (info.completed_at, info.failed_at, info.next_retry_at, info.error_code) == (None, None, None, None)
        assert (info.result, info.failed_reason, info.attempts) == (None, None, None)


async def test_t63_attempts_come_newest_first(broker: PostgresBroker, db: AsyncConnection) -> None:
    handle: TaskHandle[Any] = TaskHandle(await given_task(db), broker)
    for number, outcome in enumerate(("FAILED", "WORKER_FAILURE", "COMPLETED"), start=1):
        await given_attempt(
            db, handle.task_id, attempt=number, outcome=outcome, worker_id=f"w{number}", worker_pid=number
        )
    info = (await handle.info_async(include_attempts=True)).unwrap()
    assert info is not None and info.attempts is not None
    assert [attempt.attempt for attempt in info.attempts] == [3, 2, 1]
    assert info.attempts[1].outcome is TaskAttemptOutcome.WORKER_FAILURE
    assert (info.attempts[1].worker_id, info.attempts[1].worker_pid, info.attempts[1].task_id) == (
        "w2",
        2,
        handle.task_id,
    )


async def test_t63_an_unreadable_result_is_an_error_result(broker: PostgresBroker, db: AsyncConnection) -> None:
    task_id = await given_task(db, status=TaskStatus.COMPLETED, result="{")
    info = broker.get_task_info(task_id, include_result=True).unwrap()
    assert info is not None and info.result is not None
    assert info.result.err_value.error_code is OperationalErrorCode.RESULT_DESERIALIZATION_ERROR


@pytest.mark.parametrize("status", [PENDING, CLAIMED])
async def test_m48_a_task_that_has_not_started_is_cancelled(
    broker: PostgresBroker, db: AsyncConnection, status: TaskStatus
) -> None:
    handle: TaskHandle[Any] = TaskHandle(await given_task(db, status=status), broker)
    assert handle.cancel().unwrap() == TaskCancelled(handle.task_id, previous_status=status)
    assert handle.get(10_000).err_value.error_code is OutcomeCode.TASK_CANCELLED
    row = await task_row(db, handle.task_id)
    assert (row["status"], row["claimed"], row["error_code"]) == ("CANCELLED", False, "TASK_CANCELLED")
    again = (await handle.cancel_async()).unwrap_err()
    assert (again.code, again.current_status) == (TaskActionErrorCode.TASK_NOT_CANCELLABLE, TaskStatus.CANCELLED)


async def test_m48_a_running_task_only_when_asked_to_and_then_its_owner_is_told(
    broker: PostgresBroker, db: AsyncConnection, database_url: str
) -> None:
    task_id = await given_task(db, status=RUNNING)
    refused = (await monitoring.cancel_task(broker, task_id)).unwrap_err()
    assert (refused.code, refused.current_status) == (TaskActionErrorCode.TASK_NOT_CANCELLABLE, RUNNING)
    async with await AsyncConnection.connect(database_url, autocommit=True) as owner:
        await owner.execute("LISTEN horsies_claim_lost")
        done = await monitoring.cancel_task(broker, task_id, include_running=True)
        assert done.unwrap() == TaskCancelled(task_id, previous_status=RUNNING)
        told = [notice.payload async for notice in owner.notifies(timeout=15, stop_after=1)]
        assert told == [task_id]


@pytest.mark.parametrize("status", [TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.EXPIRED])
async def test_m48_what_has_ended_stays_as_it_is(
    broker: PostgresBroker, db: AsyncConnection, status: TaskStatus
) -> None:
    task_id = await given_task(db, status=status)
    refused = (await monitoring.cancel_task(broker, task_id, include_running=True)).unwrap_err()
    assert (refused.code, refused.current_status) == (TaskActionErrorCode.TASK_NOT_CANCELLABLE, status)
    assert (await task_row(db, task_id))["status"] == status.value


async def test_m48_tasks_that_are_not_there_or_belong_to_a_workflow(
    broker: PostgresBroker, db: AsyncConnection
) -> None:
    assert (await monitoring.cancel_task(broker, "x")).unwrap_err().code is TaskActionErrorCode.TASK_NOT_FOUND
    task_id = await given_task(db, workflow_id="wf")
    refused = (await monitoring.cancel_task(broker, task_id)).unwrap_err()
    assert (refused.code, refused.current_status) == (TaskActionErrorCode.TASK_IS_WORKFLOW_TASK, PENDING)
    assert (await task_row(db, task_id))["status"] == "PENDING"


@pytest.mark.parametrize("status", [PENDING, CLAIMED, RUNNING])
async def test_m48_nothing_revives_a_cancelled_task(
    broker: PostgresBroker, db: AsyncConnection, status: TaskStatus
) -> None:
    """Not its owner that comes late, by no move; not another claim; not recovery."""
    task_id = await given_task(db, status=status, claimed_at="2020-01-01T00:00:00Z", started_at="2020-01-01T00:00:00Z")
    (await monitoring.cancel_task(broker, task_id, include_running=True)).unwrap()
    before = await task_row(db, task_id)
    claim, fail = Claim(task_id, before["claim_seq"]), Fail(Claim(task_id, before["claim_seq"]), "{}", "NO")
    for move in (Complete(claim, "{}"), fail, Retry(claim, 0, fail), Requeue(claim), Expire(claim, "{}")):
        assert await tasks.apply(db, "w1", [move]) == set()
    assert await tasks.start(db, "w1", "h", [claim], [1], ["c"]) == set()
    who, order = Claimant("w2", timedelta(minutes=1), False), ClaimOrder(["default"], [9], [None], 9, 9, None, True, [])
    assert await tasks.claim(db, who, order) == [] == await tasks.claim_expired(db, who, ["default"], 9)
    recovered = [await broker.mark_stale_tasks_as_failed(1), await broker.requeue_stale_claimed(1)]
    assert [count.unwrap() for count in recovered] == [0, 0]
    assert await task_row(db, task_id) == before


async def test_m48_a_database_that_is_away_is_a_value() -> None:
    with a_broker(f"postgresql://u@127.0.0.1:{refusing_port()}/x") as broker:
        error = (await monitoring.cancel_task(broker, "x")).unwrap_err()
        assert (error.code, error.retryable) == (TaskActionErrorCode.DB_OPERATION_FAILED, True)
        assert "Connection refused" in error.message


@contextlib.asynccontextmanager
async def answering_workers(url: str, *names: str) -> AsyncIterator[None]:
    """Somebody who answers pings as these workers would, amid noise that must be ignored."""
    ready = asyncio.Event()

    async def answer() -> None:
        async with (
            await AsyncConnection.connect(url, autocommit=True) as ears,
            await AsyncConnection.connect(url, autocommit=True) as mouth,
        ):
            await ears.execute("LISTEN horsies_worker_ping")
            ready.set()
            async for notice in ears.notifies():
                question = json.loads(notice.payload)
                pongs = ["noise", json.dumps({"id": "another question", "worker_id": "w9", "hostname": "h", "pid": 9})]
                for name in names:
                    if question["target"] in (None, name):
                        pongs.append(json.dumps({"id": question["id"], "worker_id": name, "hostname": "h", "pid": 7}))
                for pong in pongs:
                    await mouth.execute("SELECT pg_notify('horsies_worker_pong', %s)", [pong])

    answering = asyncio.create_task(answer())
    await ready.wait()
    try:
        yield
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


async def test_m41_no_worker_is_an_empty_answer(broker: PostgresBroker) -> None:
    assert broker.ping_workers(timeout_seconds=0.05).unwrap() == []


async def test_m40_worker_stats_count_what_runs_where(broker: PostgresBroker, db: AsyncConnection) -> None:
    started = datetime(2030, 1, 1, tzinfo=UTC)
    where = {"worker_hostname": "h", "worker_pid": 1, "worker_process_name": "child-1"}
    for age in range(2):
        await given_task(db, status=RUNNING, started_at=started - timedelta(minutes=age), **where)
    await given_task(db, status=CLAIMED)
    stats = (await broker.get_worker_stats()).unwrap()
    assert stats == [
        where | {"active_tasks": 2, "oldest_task_start": started - timedelta(minutes=1), "latest_heartbeat": None}
    ]


async def test_t67_a_forked_process_connects_for_itself_and_leaves_the_parents_connections(
    broker: PostgresBroker, db: AsyncConnection
) -> None:
    ended = await given_task(db, status=TaskStatus.COMPLETED, result='{"ok": 1}')
    waited_for = await given_task(db)
    waiting = asyncio.create_task(broker.get_result_async(waited_for))
    assert broker.get_result(ended) == TaskResult(ok=1)
    await eventually(lambda: _has(db, ["horsies", "horsies listener"]))
    before = await sessions(db)

    def child() -> bool:
        answered = broker.get_result(ended, 10_000) == TaskResult(ok=1) and broker.enqueue("from the child").is_ok()
        broker.close()
        return answered

    async def are_as_before() -> bool:
        return await sessions(db) == before

    assert await asyncio.to_thread(in_a_fork, child)
    await eventually(are_as_before)  # what the child has closed is gone when the server has noticed
    await end_task(db, waited_for, TaskStatus.COMPLETED, '{"ok": 2}')
    assert await asyncio.wait_for(waiting, 15) == TaskResult(ok=2)
    assert await count_tasks(db) == 3


async def _has(db: AsyncConnection, names: list[str]) -> bool:
    return sorted(name for _, name in await sessions(db)) == names


def test_t67_a_forked_process_that_ends_in_the_usual_way_does_not_hang_up_for_its_parent(database_url: str) -> None:
    """The child's interpreter tears everything down, including what it inherited; the parent's sessions survive it."""
    script = """
        import os, sys, warnings
        warnings.filterwarnings("ignore", "This process .* is multi-threaded")
        from horsies.core.brokers.postgres import PostgresBroker
        from horsies.core.models.broker import PostgresConfig
        broker = PostgresBroker(PostgresConfig(database_url=sys.argv[1], pool_size=1, max_overflow=0))
        broker.get_result(broker.enqueue("x").unwrap(), 1)

        async def backend():
            async with broker.hub.connection() as conn:
                return (await (await conn.execute("SELECT pg_backend_pid()")).fetchone())[0]

        mine = broker.bridge.run(backend)
        for use_it in (True, False):
            pid = os.fork()
            if pid == 0:
                if use_it:
                    sent = broker.enqueue("y")
                    assert sent.is_ok(), sent
                sys.exit(0)
            status = os.waitpid(pid, 0)[1]
            assert status == 0, status
        after = broker.bridge.run(backend)
        assert after == mine, (mine, after)
        print("same session")
    """
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(script), database_url],
        capture_output=True, text=True, timeout=60, cwd=os.getcwd(),
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "same session\n", ""), done.stderr


def test_t67_a_process_that_is_waiting_ends_at_once_and_quietly(database_url: str) -> None:
    script = """
        import logging, sys, threading, time
        from horsies.core.brokers.postgres import PostgresBroker
        from horsies.core.models.broker import PostgresConfig
        logging.getLogger("asyncio").setLevel("ERROR")  # it warns of every step that a busy machine makes slow
        broker = PostgresBroker(PostgresConfig(database_url=sys.argv[1]))
        task_id = broker.enqueue("x").unwrap()
        threading.Thread(target=broker.get_result, args=[task_id], daemon=True).start()
        while not broker.bridge._runner.resource.listener.connected:
            time.sleep(0.01)
    """
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(script), database_url],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


async def test_t10_at_most_pool_size_and_overflow_connections_are_used(database_url: str, db: AsyncConnection) -> None:
    with a_broker(database_url, pool_size=2, max_overflow=1) as broker:
        found = await asyncio.gather(*(broker.get_task_info_async("x") for _ in range(60)))
        assert all(result.is_ok() for result in found)
        assert len(await sessions(db, "horsies")) <= 3
        await eventually(lambda: _has(db, ["horsies", "horsies"]))


async def test_t11_a_closed_broker_opens_again(broker: PostgresBroker, db: AsyncConnection) -> None:
    assert broker.ping_database().is_ok()
    await broker.close_async()
    await eventually(lambda: _has(db, []))
    assert broker.ping_database().is_ok()
