"""Retention while tasks are sent and run: bounded batches, and claims go on (R-84)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.db.connections import BY_INDEX, make_pool
from horsies.core.db.pool import Connection, Pool
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.recovery.retention import Retention
from tests.audit import audit, transactions
from tests.e2e.test_many_stale import claims, p95
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("superuser")]

# Each with an attempt and a heartbeat.
OLD = """
    INSERT INTO horsies_tasks (id, task_name, status, enqueued_at, completed_at, result)
    SELECT 'old' || n, 'noop', 'COMPLETED', at, at, '{}'
    FROM generate_series(1, %(count)s) AS n, LATERAL (SELECT now() - interval '60 days' + n * interval '1 s') AS _(at)
"""
ATTEMPTS = """
    INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, finished_at)
    SELECT id, 1, 'COMPLETED', FALSE, completed_at FROM horsies_tasks WHERE id LIKE 'old%'
"""
BEATS = """
    INSERT INTO horsies_heartbeats (task_id, sender_id, role, sent_at)
    SELECT id, 's', 'runner', completed_at FROM horsies_tasks WHERE id LIKE 'old%'
"""
LEFT = (
    "SELECT (SELECT count(*) FROM horsies_tasks WHERE id LIKE 'old%%') + (SELECT count(*) FROM horsies_heartbeats) AS n"
)


async def given_old(db: AsyncConnection[Any], count: int) -> None:
    await db.execute("SET session_replication_role = replica")
    await db.execute(OLD, {"count": count})
    await db.execute(ATTEMPTS)
    await db.execute(BEATS)
    await db.execute("SET session_replication_role = origin")
    await db.execute("ANALYZE")


class Paused:
    """Connections for as long as it goes on: each batch takes one."""

    def __init__(self, pool: Pool, goes_on: asyncio.Event) -> None:
        self._pool = pool
        self._goes_on = goes_on

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        await self._goes_on.wait()
        async with self._pool.connection() as conn:
            yield conn


DELETES = {"horsies_tasks": "DELETE", "horsies_task_attempts": "DELETE", "horsies_heartbeats": "DELETE"}


async def test_r80_r84_a_worker_prunes_thousands_in_bounded_batches_beside_its_tasks(
    db: AsyncConnection[Any], basic: Any, rows: Rows
) -> None:
    await given_old(db, 1_600)
    await audit(db, **DELETES)
    async with running_worker(basic.app):
        sent = 0

        async def is_gone() -> bool:
            nonlocal sent
            sent += 1
            assert (await (await basic.add.send_async(sent, 1)).unwrap().get_async(timeout_ms=20_000)).ok == sent + 1
            return (await rows.all(LEFT))[0]["n"] == 0

        await eventually(is_gone, 30)
    batches = await transactions(db)
    assert sum(batches) == 3 * 1_600
    assert max(batches) <= 500
    assert await rows.all("SELECT status, count(*)::int AS n FROM horsies_tasks GROUP BY 1") == [
        {"status": "COMPLETED", "n": sent}
    ]


@pytest.mark.slow("a million old tasks")
@pytest.mark.timeout(1800)
async def test_r84_claims_are_unaffected_while_a_million_old_tasks_go(
    db: AsyncConnection[Any], database_url: str, rows: Rows
) -> None:
    await given_old(db, 1_000_000)
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, priority)"
        " SELECT 'probe' || n, 'noop', 1 FROM generate_series(1, 300000) AS n"
    )
    await db.execute("VACUUM ANALYZE")
    await audit(db, **DELETES)
    pool = make_pool(PostgresConfig(database_url=database_url), options=BY_INDEX)
    goes_on = asyncio.Event()
    retention = Retention(Paused(pool, goes_on), RecoveryConfig(), WorkerRecoveryConfig())
    async with await AsyncConnection.connect(database_url, autocommit=True, options=BY_INDEX) as conn:
        await claims(conn, lambda taken: taken < 400)  # warm
        loop = asyncio.get_running_loop()
        began, passes = loop.time(), 0

        async def prune() -> None:
            nonlocal passes
            passes += 1
            while not await retention.prune():
                passes += 1

        pruning = asyncio.create_task(prune())
        alone, beside = list[float](), list[float]()
        while not pruning.done():  # in turns, so that whatever else the machine does slows both
            alone += await claims(conn, lambda taken: taken < 50)
            goes_on.set()
            beside += await claims(conn, lambda taken: taken < 100 and not pruning.done())
            goes_on.clear()
        took = loop.time() - began
        await pruning
    await pool.close()
    batches = await transactions(db)
    print(
        f"\n{sum(batches)} rows in {len(batches)} batches, {passes} passes, {took:.0f} s; claims beside it: median"
        f" {1e3 * median(beside):.2f} ms (alone {1e3 * median(alone):.2f}), p95 {1e3 * p95(beside):.2f} ms"
        f" (alone {1e3 * p95(alone):.2f})"
    )
    assert (await rows.all(LEFT))[0]["n"] == 0
    assert sum(batches) == 3_000_000
    assert max(batches) <= 500
    assert median(beside) <= 2 * median(alone)
