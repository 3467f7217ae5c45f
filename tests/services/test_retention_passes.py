"""Passes of the retention on a real database. What one batch deletes is tried in `tests/store/test_retention.py`."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.db import BY_INDEX, make_pool
from horsies.core.db.pool import Pool
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.recovery.hooks import NoHooks
from horsies.core.recovery.reaper import Reaper
from horsies.core.recovery.retention import Purge, Retention, delete_ended, longest_threshold
from horsies.core.store import retention as store
from horsies.core.types.status import TaskStatus
from horsies.core.worker.fence import Pulse
from tests.audit import audit, transactions
from tests.factories import (
    given_attempt,
    given_audit,
    given_heartbeat,
    given_node,
    given_rollup,
    given_task,
    given_worker,
    given_worker_state,
    given_workflow,
    task_row,
)
from tests.recovery_support import LONG_AGO
from tests.support import eventually

TABLES = (
    "tasks", "task_attempts", "workflows", "workflow_tasks", "heartbeats", "worker_states", "workers", "rollup",
    "audit",
)  # fmt: skip

Db = AsyncConnection[Any]


@pytest.fixture
def db(clean_db: Db) -> Db:
    return clean_db


@pytest.fixture
def pool(clean_pool: Pool) -> Pool:
    return clean_pool


def a_retention(pool: Pool, recovery: dict[str, Any] | None = None, **more: Any) -> Retention:
    return Retention(pool, RecoveryConfig(**(recovery or {})), WorkerRecoveryConfig(), **more)


async def given_old_records(db: Db) -> None:
    """One of everything, ages old, and a young one beside it."""
    for when in (LONG_AGO, "now"):
        workflow_id = await given_workflow(db, status="FAILED", completed_at=when)
        task_id = await given_task(db, status=TaskStatus.FAILED, failed_at=when, workflow_id=workflow_id)
        await given_attempt(db, task_id)
        await given_node(db, workflow_id, task_id=task_id)
        await given_heartbeat(db, task_id, "runner", sent_at=when)
        await given_worker_state(db, "w", snapshot_at=when)
        await given_worker(db, when, last_heartbeat_at=when)
        await given_rollup(db, start_at=when)
        await given_audit(db, at=when)


async def old_tasks(db: Db, count: int, attempts: int = 0) -> None:
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, completed_at)"
        " SELECT 't' || n, 't', 'COMPLETED', '2020-01-01' FROM generate_series(1, %s) AS n",
        [count],
    )
    await db.execute(
        "INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, finished_at)"
        " SELECT t.id, a, 'FAILED', TRUE, now() FROM horsies_tasks t, generate_series(1, %s) AS a",
        [attempts],
    )


async def counts(db: Db) -> dict[str, int]:
    found = {}
    for name in TABLES:
        cursor = await db.execute(f"SELECT count(*) FROM horsies_{name}".encode())  # noqa: S608
        [(found[name],)] = await cursor.fetchall()
    return found


async def test_r80_r82_r85_a_pass_prunes_every_category(db: Db, pool: Pool) -> None:
    await given_old_records(db)
    assert await a_retention(pool).prune()
    assert await counts(db) == dict.fromkeys(TABLES, 1)


@pytest.mark.parametrize(
    ("setting", "kept"),
    [
        ("heartbeat_retention_hours", {"heartbeats"}),
        ("worker_state_retention_hours", {"worker_states"}),
        ("terminal_record_retention_hours", {"tasks", "task_attempts", "workflows", "workflow_tasks"}),
        ("rollup_retention_hours", {"rollup"}),
        ("audit_retention_hours", {"audit"}),
    ],
)
async def test_r80_none_switches_a_category_off(db: Db, pool: Pool, setting: str, kept: set[str]) -> None:
    await given_old_records(db)
    assert await a_retention(pool, {setting: None}).prune()
    assert await counts(db) == {name: 2 if name in kept else 1 for name in TABLES}


async def test_r80_it_is_made_once_per_hour(db: Db, pool: Pool) -> None:
    now = 5_000.0
    retention = a_retention(pool, clock=lambda: now)
    for minutes, is_made in ((0, True), (1, False), (58, False), (1, True), (59, False)):
        now += 60.0 * minutes
        await old_tasks(db, 1)
        await retention.step()
        assert (await counts(db))["tasks"] == (0 if is_made else 1), f"after {minutes} minutes more"
        await db.execute("DELETE FROM horsies_tasks")


async def test_r81_every_tick_of_the_reaper_deletes_old_heartbeats_and_no_more(db: Db, pool: Pool) -> None:
    reaper = Reaper(pool, RecoveryConfig(), WorkerRecoveryConfig(), NoHooks(), "me", Pulse(2.0))
    for _ in range(2):
        await given_heartbeat(db, "a task", "runner", sent_at=LONG_AGO)
        await given_worker_state(db, "w", snapshot_at=LONG_AGO)
        await reaper.tick()
        assert (await counts(db))["heartbeats"] == 0
    assert (await counts(db))["worker_states"] == 2


async def test_r82_heartbeats_that_may_still_tell_that_a_task_lives_stay(db: Db, pool: Pool) -> None:
    patient = {"heartbeat_retention_hours": 1, "running_stale_threshold_ms": 7_200_000}
    for minutes in (119, 121):
        await db.execute(
            "INSERT INTO horsies_heartbeats (task_id, sender_id, role, sent_at)"
            " VALUES (%(m)s, 's', 'runner', now() - %(m)s * interval '1 min')",
            {"m": minutes},
        )
    assert await a_retention(pool, patient).prune()
    cursor = await db.execute("SELECT task_id FROM horsies_heartbeats")
    assert await cursor.fetchall() == [("119",)]


@pytest.mark.parametrize(
    ("recovery", "sweeping", "longest"),
    [
        ({}, {}, timedelta(minutes=15)),  # 5 minutes, three times as long for a resilient worker
        ({"claimed_stale_threshold_ms": 3_600_000}, {}, timedelta(hours=1)),
        ({"running_stale_threshold_ms": 7_200_000}, {}, timedelta(hours=2)),
        ({"finalizing_stale_threshold_ms": 7_200_000}, {}, timedelta(hours=2)),
        ({}, {"sweep_threshold": 600, "resilient_sweep_threshold_multiplier": 12}, timedelta(hours=2)),
    ],
)
def test_r82_the_longest_threshold_counts(
    recovery: dict[str, Any], sweeping: dict[str, Any], longest: timedelta
) -> None:
    assert longest_threshold(RecoveryConfig(**recovery), WorkerRecoveryConfig(**sweeping)) == longest


async def test_r83_a_family_of_workflows_goes_in_one_pass_of_the_retention(db: Db, pool: Pool) -> None:
    """A parent goes after its children: each generation needs a walk of its own."""
    root_id = await given_workflow(db, status="COMPLETED", completed_at=LONG_AGO)
    parent_id = root_id
    for _ in range(3):
        family = {"parent_workflow_id": parent_id, "root_workflow_id": root_id}
        parent_id = await given_workflow(db, status="COMPLETED", completed_at=LONG_AGO, **family)
        await given_node(db, parent_id)
    assert await a_retention(pool).prune()
    assert (await counts(db))["workflows"] == 0


async def test_r84_a_batch_is_a_transaction_of_at_most_500_rows_cascades_included(db: Db, pool: Pool) -> None:
    await old_tasks(db, 400, attempts=2)
    await audit(db, horsies_tasks="DELETE", horsies_task_attempts="DELETE")
    assert await a_retention(pool).prune()
    batches = await transactions(db)
    assert sum(batches) == 1_200
    assert max(batches) <= 500
    assert len(batches) == 3


async def test_r84_heartbeats_and_snapshots_go_in_batches_too(db: Db, pool: Pool) -> None:
    await db.execute(
        "INSERT INTO horsies_heartbeats (task_id, sender_id, role, sent_at)"
        " SELECT n, 's', 'runner', '2020-01-01' FROM generate_series(1, 1001) AS n"
    )
    await db.execute(
        "INSERT INTO horsies_worker_states (worker_id, snapshot_at)"
        " SELECT 'w', '2020-01-01' FROM generate_series(1, 501) AS n"
    )
    await audit(db, horsies_heartbeats="DELETE", horsies_worker_states="DELETE")
    assert await a_retention(pool).prune()
    assert await transactions(db) == [500, 500, 1, 500, 1]


async def test_r84_a_pass_that_has_used_its_time_is_continued_by_the_next(db: Db, pool: Pool) -> None:
    await old_tasks(db, 1_100)
    await given_worker_state(db, "w", snapshot_at=LONG_AGO)
    retention = a_retention(pool, pass_s=0.0)
    left = []
    while (await counts(db))["tasks"] and len(left) < 20:
        await retention.prune()
        left.append((await counts(db))["tasks"])
    assert left == [1_100] * left.count(1_100) + [600, 100, 0]
    assert (await counts(db))["worker_states"] == 0


async def test_r84_there_is_no_pause_while_there_is_more(db: Db, pool: Pool) -> None:
    """A step does not end because the time of one pass is over: the next step is half a minute away."""
    await old_tasks(db, 1_100)
    await a_retention(pool, pass_s=0.0).step()
    assert (await counts(db))["tasks"] == 0


async def test_r84_d62_while_another_prunes_nothing_is_deleted_and_it_is_tried_again_soon(db: Db, pool: Pool) -> None:
    await old_tasks(db, 1)
    retention = a_retention(pool)
    async with db.transaction():
        assert await store.try_lock(db)
        await retention.step()
    assert (await counts(db))["tasks"] == 1
    await retention.step()
    assert (await counts(db))["tasks"] == 0


NOTING = """
    CREATE TABLE noted (setting text);
    CREATE FUNCTION note() RETURNS trigger AS
        'BEGIN INSERT INTO noted VALUES (current_setting(''synchronous_commit'')); RETURN NULL; END' LANGUAGE plpgsql;
    CREATE TRIGGER note AFTER DELETE ON horsies_tasks FOR EACH STATEMENT EXECUTE FUNCTION note();
"""


async def test_r84_only_the_commits_of_a_purge_by_hand_wait_for_the_disk(
    broker: PostgresBroker, database_url: str
) -> None:
    async with await AsyncConnection.connect(database_url, autocommit=True) as db:
        pool = make_pool(PostgresConfig(database_url=database_url), min_size=1, max_size=2, options=BY_INDEX)
        try:
            await db.execute(NOTING)
            by_hand = Purge(timedelta(hours=1))
            for prune, commit in (a_retention(pool).step, "off"), (lambda: delete_ended(broker, by_hand), "on"):
                await old_tasks(db, 3)
                await prune()
                assert (await counts(db))["tasks"] == 0
                noted = await (await db.execute("DELETE FROM noted RETURNING setting")).fetchall()
                assert set(noted) == {(commit,)}
        finally:
            await pool.close()


async def test_d62_a_batch_of_another_in_between_does_not_end_a_pass(db: Db, pool: Pool) -> None:
    """Its lock is held for a moment: a later try comes through."""
    await old_tasks(db, 1)
    retention = a_retention(pool)
    async with db.transaction():
        assert await store.try_lock(db)
        pruning = asyncio.create_task(retention.prune())

        async def has_tried() -> bool:
            await db.execute("SELECT pg_stat_clear_snapshot()")
            tried = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query = 'COMMIT'"
            return await (await db.execute(tried)).fetchone() is not None

        await eventually(has_tried)
    assert await pruning
    assert (await counts(db))["tasks"] == 0


async def test_l23_retention_touches_nothing_that_has_not_ended(db: Db, pool: Pool) -> None:
    """It deletes rows; it makes no transition."""
    old = {"created_at": LONG_AGO, "updated_at": LONG_AGO, "enqueued_at": LONG_AGO, "claimed_at": LONG_AGO}
    ids = [
        await given_task(db, status=status, **old)
        for status in (TaskStatus.PENDING, TaskStatus.CLAIMED, TaskStatus.RUNNING)
    ]
    before = [await task_row(db, task_id) for task_id in ids]
    assert await a_retention(pool).prune()
    assert [await task_row(db, task_id) for task_id in ids] == before


async def test_r84_a_row_that_somebody_refers_to_is_left_and_keeps_none_back(
    db: Db, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    """A foreign key of the user's own tables refuses the deletion of one task and of one workflow."""
    tasks = [await given_task(db, status=TaskStatus.FAILED, failed_at=LONG_AGO) for _ in range(30)]
    flows = [await given_workflow(db, status="FAILED", completed_at=LONG_AGO) for _ in range(5)]
    await given_worker(db, "silent", last_heartbeat_at=LONG_AGO)
    await db.execute("CREATE TABLE orders (task text REFERENCES horsies_tasks, flow text REFERENCES horsies_workflows)")
    try:
        await db.execute("INSERT INTO orders VALUES (%s, %s)", [tasks[17], flows[2]])
        assert await a_retention(pool).prune(), "it has come to the end"
        assert await ids_in(db, "tasks") == {tasks[17]}
        assert await ids_in(db, "workflows") == {flows[2]}
        assert not await (await db.execute("SELECT FROM horsies_workers")).fetchall(), "what comes after is done too"
    finally:
        await db.execute("DROP TABLE orders")
    assert caplog.text.count("tasks are left that cannot be deleted") == 1 and "foreign key" in caplog.text


async def ids_in(db: Db, table: str) -> set[str]:
    cursor = await db.execute(SQL("SELECT id FROM {}").format(Identifier(f"horsies_{table}")))
    return {row[0] for row in await cursor.fetchall()}
