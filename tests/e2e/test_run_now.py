"""A real worker that sleeps starts a task that somebody runs now (L-21b). It polls every five minutes, so that only a
wake-up can explain it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.worker.service import Worker
from horsies.monitoring import run_task_now
from tests.doorbell_support import change_mode
from tests.e2e.conftest import DOORBELL, Configured
from tests.factories import given_task, task_row
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e
NEVER = "300000"


async def sleeps_for_long(worker: Worker) -> None:
    """Now only a bell, or the poll in five minutes, can wake it."""
    await eventually(lambda: hasattr(worker, "_claimer") and worker._claimer._look_at > monotonic() + 60)


@pytest.mark.parametrize("mode", ["always", "when_waiting"])
async def test_l21b_an_idle_worker_starts_what_is_run_now(
    doorbell: Configured, database_url: str, rows: Rows, db: AsyncConnection[Any], mode: str
) -> None:
    module = doorbell(NOTIFY=mode, POLL_MS=NEVER)
    await change_mode(database_url, mode)
    later = datetime.now(UTC) + timedelta(days=29)
    given = {"task_name": "note", "queue_name": "left", "args": '["x"]', "enqueued_at": later}
    waits = await given_task(db, **given)
    tried = await given_task(db, **given, next_retry_at=later, retry_count=1, max_retries=3)
    stays = await given_task(db, **given)
    async with running_worker(module.app, app_locator=f"{DOORBELL}:app") as worker:
        for task_id in (waits, tried):
            await sleeps_for_long(worker)
            (await run_task_now(module.app.get_broker(), task_id)).unwrap()
            await rows.until(task_id, "COMPLETED")
    assert (await task_row(db, tried))["retry_count"] == 1, "its attempts stay counted"
    assert (await task_row(db, stays))["status"] == "PENDING"
