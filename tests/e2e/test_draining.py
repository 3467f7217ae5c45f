"""Real workers that are asked to drain (W-55)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.monitoring import drain_worker, list_workers
from tests.factories import given_task
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess

pytestmark = pytest.mark.e2e

REGISTERED = "SELECT worker_id FROM horsies_workers"


async def busy(rows: Rows, db: AsyncConnection[Any], seconds: float = 60) -> tuple[str, str]:
    """A task that runs, and the worker that runs it."""
    task_id = await given_task(db, task_name="nap", args=f'[{seconds}, "busy"]')
    await rows.until(task_id, "RUNNING", timeout=60)
    return task_id, (await rows.task(task_id))["claimed_by_worker_id"]


def until_it_drains(worker: WorkerProcess) -> None:
    assert worker.process.stdout is not None
    assert any("somebody has asked this worker to drain" in line for line in worker.process.stdout), "it ended"


async def test_w55_a_worker_that_drains_finishes_its_task_and_takes_no_other(
    database_url: str, rows: Rows, db: AsyncConnection[Any], traces: Path
) -> None:
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    try:
        with WorkerProcess(database_url) as worker:
            running, worker_id = await busy(rows, db)
            (await drain_worker(broker, worker_id)).unwrap()
            [shown] = (await list_workers(broker)).unwrap()
            assert shown.is_draining
            await asyncio.to_thread(until_it_drains, worker)
            later = await given_task(db, task_name="noop")
            (traces / "busy.go").touch()
            code, said = await asyncio.to_thread(worker.wait, 60)
    finally:
        await broker.close_async()
    assert code == 0, said
    assert (await rows.status(running), await rows.status(later)) == ("COMPLETED", "PENDING")
    assert await rows.all(REGISTERED) == []


async def test_w55_a_request_whose_notification_is_lost_is_found_with_the_next_heartbeat(
    database_url: str, rows: Rows, db: AsyncConnection[Any]
) -> None:
    with WorkerProcess(database_url, "--heartbeat-interval", "1s", "--sweep-threshold", "60s") as worker:
        await eventually(lambda: rows.all(REGISTERED), 60, what="the worker is registered")
        await db.execute("UPDATE horsies_workers SET drain_requested_at = now()")
        code, said = await asyncio.to_thread(worker.wait, 60)
    assert code == 0, said


async def test_w52_w55_a_signal_while_it_drains_kills_nothing(
    database_url: str, rows: Rows, db: AsyncConnection[Any], traces: Path
) -> None:
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    try:
        with WorkerProcess(database_url) as worker:
            running, worker_id = await busy(rows, db, 2)
            (await drain_worker(broker, worker_id)).unwrap()
            await asyncio.to_thread(until_it_drains, worker)
            worker.process.send_signal(signal.SIGTERM)
            code, said = await asyncio.to_thread(worker.wait, 60)
    finally:
        await broker.close_async()
    assert code == 0, said
    assert await rows.status(running) == "COMPLETED"
