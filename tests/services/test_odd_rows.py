"""Whatever is in a row, it holds up no other (L-19a, D-14, R-24): every value in every column, one at a time, beside
healthy rows, while all passes of a worker are made. The constraints are dropped first, as in an old installation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from horsies.core.db import BY_INDEX, Pool, make_pool, mending
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.recovery import WorkerRecoveryConfig
from horsies.core.recovery.hooks import NoHooks
from horsies.core.recovery.reaper import Reaper
from horsies.core.recovery.retention import Retention
from horsies.core.recovery.sweep import Sweeper
from horsies.core.schema.limits import ensure_limits
from horsies.core.store import odd_rows, tasks
from horsies.core.types.status import TaskStatus
from horsies.core.worker.fence import Pulse
from tests.factories import given_task, task_row
from tests.odd_rows_support import drop_constraints, plant, planted
from tests.recovery_support import LONG_AGO, hasty

PENDING, CLAIMED, RUNNING = TaskStatus.PENDING, TaskStatus.CLAIMED, TaskStatus.RUNNING
STALE = {"claimed_at": LONG_AGO, "claim_expires_at": "2999-01-01"}
SWEEPING = WorkerRecoveryConfig(enabled=True, heartbeat_interval=1_000, sweep_threshold=2_000, sweep_interval=1_000)

Db = AsyncConnection[Any]


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Db]:
    async with await AsyncConnection.connect(database_url, autocommit=True) as conn:
        await drop_constraints(conn)
        yield conn


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    pool = make_pool(PostgresConfig(database_url=database_url), min_size=1, max_size=2, options=BY_INDEX)
    yield pool
    await pool.close()


class Worker:
    """The passes of one worker over everything, without its children."""

    def __init__(self, pool: Pool, *, concurrency: int = 1) -> None:
        self.pool = pool
        self.who = tasks.Claimant("me", timedelta(minutes=1), False)
        self.order = tasks.ClaimOrder(
            queues=["default"], takes=[100], caps=[None], budget=100, sync_budget=100 if concurrency == 1 else 1,
            cluster_cap=None, hard=True, async_names=[], concurrency=concurrency,
        )  # fmt: skip
        recovery = hasty(terminal_record_retention_hours=1, heartbeat_retention_hours=1, worker_state_retention_hours=1)
        self.reaper = Reaper(pool, recovery, WorkerRecoveryConfig(), NoHooks(), "me", Pulse(2.0))
        self.sweeper = Sweeper(pool, SWEEPING, recovery, NoHooks(), "me", Pulse(2.0))
        self.retention = Retention(pool, recovery, SWEEPING)

    async def claim(self) -> set[str]:
        async def once() -> list[tasks.Claimed]:
            async with self.pool.connection() as conn:
                return await tasks.claim(conn, self.who, self.order)

        async def lapsed() -> list[tasks.Claimed]:
            async with self.pool.connection() as conn:
                return await tasks.claim_expired(conn, self.who, ["default"], 100)

        mend = partial(odd_rows.set_aside_odd, self.pool)
        rows = await mending(once, mend)
        return {row.id for row in rows + await mending(lapsed, mend)}

    async def care(self) -> None:
        await self.reaper.tick()
        await self.sweeper.step()
        await self.retention.prune()


async def healthy(db: Db) -> dict[str, str]:
    """One of each that some pass has to move, and where it should end."""
    return {
        await given_task(db, status=CLAIMED, claimed_by_worker_id="gone", **STALE): "PENDING",
        await given_task(db, status=RUNNING, claimed_by_worker_id="gone", started_at=LONG_AGO, **STALE): "FAILED",
        await given_task(db, good_until=LONG_AGO): "EXPIRED",
    }


async def ends(db: Db, ids: dict[str, str]) -> dict[str, str]:
    return {task_id: (await task_row(db, task_id))["status"] for task_id in ids}


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "failed and will be retried" in r.getMessage() or r.exc_info]


async def clear(db: Db) -> None:
    """Row by row: to truncate a table makes new files for it and each of its indexes."""
    for table in ("task_attempts", "tasks", "workers", "heartbeats", "worker_states", "meta"):
        await db.execute(SQL("DELETE FROM {}").format(Identifier(f"horsies_{table}")))


@pytest.mark.parametrize("is_constrained", [False, True], ids=["no constraints", "constraints not valid"])
@pytest.mark.parametrize("status", [PENDING, CLAIMED, RUNNING])
async def test_l19a_no_value_in_a_task_holds_up_another(
    db: Db, pool: Pool, status: TaskStatus, is_constrained: bool, caplog: pytest.LogCaptureFixture
) -> None:
    worker, eager = Worker(pool), Worker(pool, concurrency=4)
    found: list[str] = []
    for what in await planted(db, "horsies_tasks"):
        caplog.clear()
        given = {} if status is PENDING else {"claimed_by_worker_id": "gone", **STALE}
        if status is RUNNING:
            given["started_at"] = LONG_AGO
        odd = await given_task(db, status=status, **given)
        await plant(db, what, "id", odd)
        if is_constrained:
            await ensure_limits(db)
        expected = await healthy(db)
        waiting = {await given_task(db) for _ in range(3)}
        try:
            claimed = await worker.claim()
            claimed |= await eager.claim()
            await worker.care()
        except Exception as problem:
            found.append(f"{what}: {problem!r}")
        else:
            if not waiting <= claimed:
                found.append(f"{what}: the healthy ones were not claimed")
            if (reached := await ends(db, expected)) != expected:
                found.append(f"{what}: {list(reached.values())}")
            found += [f"{what}: {line}" for line in complaints(caplog)]
        await clear(db)
        if is_constrained:
            await drop_constraints(db)
    assert found == []
