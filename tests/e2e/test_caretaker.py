"""What a running worker does for tasks that are not its own."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies.core.models.recovery import RecoveryConfig
from horsies.core.types.status import TaskStatus
from tests.factories import given_task
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e

LONG_AGO = "2020-01-01"


def configure(basic: Any, **recovery: Any) -> None:
    basic.app.config = basic.app.config.model_copy(update={"recovery": RecoveryConfig(**recovery)})


async def is_served(rows: Rows) -> bool:
    return await rows.all("SELECT 1 FROM horsies_worker_states") != []


async def test_r15_a_worker_recovers_what_falls_silent_while_it_serves(
    db: AsyncConnection[Any], basic: Any, rows: Rows
) -> None:
    async with running_worker(basic.app):  # looks every second
        await eventually(lambda: is_served(rows))
        for _ in range(2):  # at more than one tick
            noop = {"task_name": "noop", "kwargs": "{}"}
            claimed = await given_task(db, status=TaskStatus.CLAIMED, claimed_at=LONG_AGO, **noop)
            running = await given_task(db, status=TaskStatus.RUNNING, started_at=LONG_AGO, worker_pid=7)
            assert (await rows.until(running, "FAILED"))["error_code"] == "WORKER_CRASHED"
            await rows.until(claimed, "COMPLETED")
        assert await rows.attempts(claimed) != []


async def test_l07_w20_overdue_tasks_are_expired_about_every_second_however_rare_the_ticks_are(
    db: AsyncConnection[Any], basic: Any, rows: Rows
) -> None:
    configure(basic, check_interval_ms=600_000)
    async with running_worker(basic.app):
        await eventually(lambda: is_served(rows))
        for _ in range(2):
            task_id = await given_task(db, good_until=LONG_AGO)
            assert (await rows.until(task_id, "EXPIRED"))["error_code"] == "TASK_EXPIRED"


async def test_r68_a_worker_without_worker_recovery_sweeps_one_that_nobody_sweeps(
    db: AsyncConnection[Any], basic: Any, rows: Rows
) -> None:
    own = {"sweep_interval": 1_000, "sweep_threshold": 2_000, "heartbeat_interval": 1_000}
    await db.execute(
        "INSERT INTO horsies_workers (worker_id, last_heartbeat_at, sweeping, recovery) VALUES ('dead', %s, TRUE, %s)",
        [LONG_AGO, Jsonb({"worker_recovery": own})],
    )
    columns = {"task_name": "noop", "kwargs": "{}", "claimed_by_worker_id": "dead", "recovery_enrolled": True}
    task_id = await given_task(db, status=TaskStatus.RUNNING, started_at=LONG_AGO, **columns)
    async with running_worker(basic.app):
        row = await rows.until(task_id, "PENDING")
    assert row["failed_reason"] == "Job recovered after worker interruption"
    assert row["enqueued_at"] > row["updated_at"]  # after the delay of recovery
    assert [attempt["outcome"] for attempt in await rows.attempts(task_id)] == ["WORKER_FAILURE"]
    assert await rows.all("SELECT 1 FROM horsies_workers WHERE worker_id = 'dead'") == []


async def test_r23_r16_a_worker_whose_database_was_away_goes_on_with_its_ticks(
    db: AsyncConnection[Any], basic: Any, rows: Rows
) -> None:
    async with running_worker(basic.app):
        await eventually(lambda: is_served(rows))
        await rows.all(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'horsies worker%%'"
        )
        task_id = await given_task(db, status=TaskStatus.RUNNING, started_at=LONG_AGO)
        await rows.until(task_id, "FAILED")
