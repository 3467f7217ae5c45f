"""Between claim and start: leases, deadlines, claims that are lost, and answers that never came."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from horsies import OutcomeCode, TaskHandle
from horsies.core.worker.config import WorkerConfig
from horsies.core.worker.service import Worker
from tests.e2e.conftest import LIMITS
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e

PREFETCHING = {"app_locator": f"{LIMITS}:app", "processes": 1, "run_ahead_ms": 0}


async def send(task: Any, *args: Any, **kwargs: Any) -> TaskHandle[Any]:
    handle: TaskHandle[Any] = (await task.send_async(*args, **kwargs)).unwrap()
    return handle


async def trap(url: str, body: str) -> None:
    """Run this for each update of a task, before it is made. `misfires` counts, also when the transaction is lost."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        await db.execute("CREATE SEQUENCE misfires")
        await db.execute(
            f"CREATE FUNCTION trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NEW; END $$".encode()
        )
        await db.execute("CREATE TRIGGER trap BEFORE UPDATE ON horsies_tasks FOR EACH ROW EXECUTE FUNCTION trap()")


def ran(traces: Path, name: str) -> int:
    path = traces / name
    return len(path.read_text().splitlines()) if path.exists() else 0


# A task that is claimed while the only child is busy


async def test_l08_a_claimed_task_whose_deadline_passes_expires_instead_of_running(
    limits: Any, rows: Rows, traces: Path
) -> None:
    module = limits(PREFETCH="1")
    async with running_worker(module.app, **PREFETCHING) as worker:
        await rows.until((await send(module.free, 1.0)).task_id, "RUNNING")
        late = await send(module.free, 0.0, good_until=datetime.now(UTC) + timedelta(hours=1))
        await rows.until(late.task_id, "CLAIMED")
        await rows.all("UPDATE horsies_tasks SET good_until = now() WHERE id = %s RETURNING id", late.task_id)
        error = (await late.get_async(timeout_ms=30_000)).unwrap_err()
    assert error.error_code is OutcomeCode.TASK_EXPIRED
    assert error.data == {"task_id": late.task_id, "worker_id": worker.worker_id}
    row = await rows.task(late.task_id)
    assert (row["status"], row["claimed"], row["claimed_by_worker_id"]) == ("EXPIRED", False, worker.worker_id)
    assert await rows.attempts(late.task_id) == [] and ran(traces, "order") == 1


async def test_r10_w27_a_claim_that_waits_is_renewed_and_beats_as_claimer(limits: Any, rows: Rows) -> None:
    module = limits(PREFETCH="1")
    async with running_worker(module.app, **PREFETCHING) as worker:
        await rows.until((await send(module.free, 3.0)).task_id, "RUNNING")
        waiting = await send(module.free, 0.0)
        claimed = await rows.until(waiting.task_id, "CLAIMED")
        (beat,) = await eventually(
            lambda: rows.all("SELECT * FROM horsies_heartbeats WHERE task_id = %s LIMIT 1", waiting.task_id)
        )

        async def renewed() -> bool:
            row = await rows.task(waiting.task_id)
            assert row["claimed_at"] == claimed["claimed_at"]
            return bool(row["claim_expires_at"] and row["claim_expires_at"] > claimed["claim_expires_at"])

        await eventually(renewed)
    assert (beat["role"], beat["sender_id"], beat["pid"]) == ("claimer", worker.worker_id, worker.me.pid)  # W-70
    assert beat["hostname"] == worker.me.hostname


async def test_w51_a_stopping_worker_hands_back_at_once_what_it_has_not_begun(
    limits: Any, rows: Rows, traces: Path
) -> None:
    module = limits(PREFETCH="3")
    worker = Worker(module.app, WorkerConfig(**PREFETCHING))
    serving = asyncio.create_task(worker.run())
    running = await send(module.free, 2.0)
    await rows.until(running.task_id, "RUNNING")
    claimed = [await send(module.free, 0.0) for _ in range(3)]
    before = [await rows.until(handle.task_id, "CLAIMED") for handle in claimed]
    worker.request_stop()
    after = [await rows.until(handle.task_id, "PENDING") for handle in claimed]
    assert await rows.status(running.task_id) == "RUNNING", "they did not wait for its end"
    assert await serving == 0
    assert await rows.status(running.task_id) == "COMPLETED"
    for was, row in zip(before, after, strict=True):
        assert (row["claimed"], row["claimed_by_worker_id"], row["enqueued_at"]) == (False, None, was["enqueued_at"])
        assert await rows.attempts(row["id"]) == []
    assert ran(traces, "order") == 1


async def test_w24_a_cluster_cap_filled_by_the_dead_does_not_lock_itself(limits: Any, rows: Rows) -> None:
    module = limits(CLUSTER_CAP="1")
    await rows.all(
        "INSERT INTO horsies_tasks (id, task_name, queue_name, args, status, claimed, claimed_by_worker_id, claimed_at,"
        " claim_expires_at, claim_seq) VALUES ('t', 'free', 'free', '[0.0]', 'CLAIMED', TRUE, 'dead', now(), now(), 1)"
        " RETURNING id"
    )
    handle = await send(module.free, 0.0)
    async with running_worker(module.app, app_locator=f"{LIMITS}:app"):
        assert (await handle.get_async(timeout_ms=30_000)).is_ok()
        assert (await rows.until("t", "COMPLETED"))["claim_seq"] == 2


# Claims that were lost, and answers that were


async def test_l26_a_claim_that_was_taken_over_aborts_the_start_w28(
    basic: Any, rows: Rows, traces: Path, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await trap(
        database_url,
        "IF NEW.status = 'CLAIMED' AND NEW.task_name = 'pid' THEN NEW.claimed_by_worker_id := 'somebody'; END IF;",
    )
    with caplog.at_level(logging.INFO, "horsies.worker"):
        async with running_worker(basic.app, concurrency=2):  # so that starts are statements of their own (W-21b)
            lost = await send(basic.pid, "lost")
            assert (await (await send(basic.add, 1, 2)).get_async(timeout_ms=30_000)).unwrap() == 3
            await eventually(lambda: "CLAIM_LOST" in caplog.text)
    row = await rows.task(lost.task_id)
    assert (row["status"], row["claimed_by_worker_id"], row["started_at"]) == ("CLAIMED", "somebody", None)
    assert await rows.attempts(lost.task_id) == [] and ran(traces, "lost") == 0
    (record,) = [record for record in caplog.records if "CLAIM_LOST" in record.message]
    assert record.__dict__["horsies"]["task_id"] == lost.task_id


async def test_l27_a_start_nobody_confirmed_is_handed_back_and_runs_once(
    basic: Any, rows: Rows, traces: Path, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The session ends in the middle of the statement that makes the task RUNNING."""
    await trap(
        database_url,
        "IF NEW.status = 'RUNNING' AND nextval('misfires') = 1 THEN"
        " PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(5); END IF;",
    )
    with caplog.at_level(logging.INFO, "horsies.worker"):
        async with running_worker(basic.app, concurrency=2):
            handle = await send(basic.pid, "once")
            assert (await handle.get_async(timeout_ms=30_000)).is_ok()
    assert "OWNERSHIP_UNCONFIRMED" in caplog.text
    row, attempts = await rows.task(handle.task_id), await rows.attempts(handle.task_id)
    assert (row["status"], row["claim_seq"], row["retry_count"]) == ("COMPLETED", 2, 0)
    assert [(a["attempt"], a["outcome"]) for a in attempts] == [(1, "COMPLETED")]
    assert ran(traces, "once") == 1


@pytest.mark.parametrize("status", ["CLAIMED", "RUNNING"])
async def test_w21_a_claim_whose_answer_was_lost_is_handed_back(
    basic: Any, rows: Rows, database_url: str, status: str
) -> None:
    await trap(
        database_url,
        "IF OLD.status = 'PENDING' AND NEW.id = 'trip' AND nextval('misfires') = 1 THEN RAISE 'no answer'; END IF;",
    )
    async with running_worker(basic.app) as worker:
        await (await send(basic.add, 1, 1)).get_async(timeout_ms=30_000)
        await rows.all(
            "INSERT INTO horsies_tasks (id, task_name, args, status, claimed, claimed_by_worker_id, claimed_at,"
            " claim_expires_at, claim_seq) VALUES ('stray', 'add', '[1, 2]', %s, TRUE, %s, now(),"
            " now() + interval '1 h', 1) RETURNING id",
            status,
            worker.worker_id,
        )
        await rows.all("INSERT INTO horsies_tasks (id, task_name, args) VALUES ('trip', 'add', '[3, 4]') RETURNING id")
        stray, trip = await rows.until("stray", "COMPLETED"), await rows.until("trip", "COMPLETED")
    assert (stray["claim_seq"], trip["claim_seq"]) == (2, 1)
    assert [len(await rows.attempts(name)) for name in ("stray", "trip")] == [1, 1]
