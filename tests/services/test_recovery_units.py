"""What the numbers of `RecoveryConfig` mean: milliseconds and hours (R-03); and that no setting is too much (R-08)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies import INFRASTRUCTURE_RESILIENT_FLAG, AppConfig, Horsies, PostgresConfig
from horsies.core.db.pool import Pool
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.recovery.retention import Retention
from horsies.core.store import recovery, workers
from horsies.core.types.status import TaskStatus
from horsies.core.worker.config import Plan, WorkerConfig
from tests.factories import given_heartbeat, given_task, given_worker, given_worker_state

Db = AsyncConnection[Any]


async def ago(db: Db, **age: float) -> datetime:
    row = await (await db.execute("SELECT now() - %s", [timedelta(**age)])).fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


def config(**settings: Any) -> RecoveryConfig:
    beats = {"runner_heartbeat_interval_ms": 1_000, "claimer_heartbeat_interval_ms": 1_000}
    return RecoveryConfig(**{**beats, **settings})


async def is_stale(db: Db, task_id: str, status: TaskStatus, **settings: int) -> bool:
    found = await recovery.find_stale(db, status, config(**settings), WorkerRecoveryConfig())
    return task_id in {task.task_id for task in found}


async def test_r03_thresholds_are_milliseconds(clean_db: Db) -> None:
    """A minute is between 50 000 and 3 000 000 of the unit only if that is a millisecond."""
    db, since = clean_db, await ago(clean_db, minutes=1)
    claimed = await given_task(db, status=TaskStatus.CLAIMED, claimed_at=since)
    running = await given_task(db, status=TaskStatus.RUNNING, started_at=since)
    finalizing = await given_task(db, status=TaskStatus.RUNNING, started_at=since, finalizing_at=since)
    for threshold, expected in ((50_000, True), (3_000_000, False)):
        quick = {"running_stale_threshold_ms": 2_000, "finalizing_stale_threshold_ms": threshold}
        found = [
            await is_stale(db, claimed, TaskStatus.CLAIMED, claimed_stale_threshold_ms=threshold),
            await is_stale(db, running, TaskStatus.RUNNING, running_stale_threshold_ms=threshold),
            await is_stale(db, finalizing, TaskStatus.RUNNING, **quick),
        ]
        assert found == [expected] * 3


async def test_r03_retentions_are_hours(clean_db: Db, clean_pool: Pool) -> None:
    """Rows of 119 and of 121 minutes: two hours are between them."""
    db = clean_db
    for minutes in (119, 121):
        at = await ago(db, minutes=minutes)
        task = await given_task(db, status=TaskStatus.COMPLETED, completed_at=at, task_name=f"{minutes}")
        await given_heartbeat(db, task, "runner", sent_at=at, pid=minutes)
        await given_worker_state(db, "w", snapshot_at=at, pid=minutes)
    hours = ("heartbeat_retention_hours", "worker_state_retention_hours", "terminal_record_retention_hours")
    assert await Retention(clean_pool, config(**dict.fromkeys(hours, 2)), WorkerRecoveryConfig()).prune()
    left = await db.execute(
        "SELECT task_name FROM horsies_tasks UNION ALL SELECT pid::text FROM horsies_heartbeats"
        " UNION ALL SELECT pid::text FROM horsies_worker_states"
    )
    assert await left.fetchall() == [("119",)] * 3


async def test_r08_no_setting_of_a_worker_can_break_those_who_judge_it(clean_db: Db, clean_pool: Pool) -> None:
    """Its own settings are in their statements (R-63): the largest that are allowed must fit into a calendar."""
    year = timedelta(days=365)
    largest = WorkerRecoveryConfig(
        heartbeat_interval=year / 2, sweep_interval=year, sweep_threshold=year, recovery_delay=year,
        resilient_sweep_threshold_multiplier=1_000,
    )  # fmt: skip
    app = Horsies(AppConfig(broker=PostgresConfig(database_url="postgresql://h/d"), worker_recovery=largest))
    settings = Plan.of(app, WorkerConfig(app_locator="shop:app")).recovery_settings()
    long_ago = await ago(clean_db, days=500 * 365)  # less than a thousand times a year
    await given_worker(clean_db, "w1", last_heartbeat_at=long_ago, sweeping=True, recovery=Jsonb(settings))
    flags = Jsonb({INFRASTRUCTURE_RESILIENT_FLAG: True})
    held = {"recovery_enrolled": True, "claimed_at": long_ago, "started_at": long_ago, "flags": flags}
    await given_task(clean_db, status=TaskStatus.RUNNING, **held)

    for judge, dead in ((WorkerRecoveryConfig(), ["w1"]), (largest, [])):
        assert [gone.worker_id for gone in await workers.dead(clean_db, "me", judge, config())] == dead
        assert await workers.abandoned(clean_db, "me", config()) == []
        assert await recovery.find_stale(clean_db, TaskStatus.RUNNING, config(), judge) == []
        assert await Retention(clean_pool, config(), judge).prune()
