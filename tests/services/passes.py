"""All passes of a worker over its tables, without its children, and healthy rows that these passes have to move."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from horsies.core.db import Pool, mending
from horsies.core.models.recovery import WorkerRecoveryConfig
from horsies.core.recovery.hooks import NoHooks
from horsies.core.recovery.reaper import Reaper
from horsies.core.recovery.retention import Retention
from horsies.core.recovery.sweep import Sweeper
from horsies.core.store import odd_rows, tasks
from horsies.core.types.status import TaskStatus
from horsies.core.worker.fence import Pulse
from tests.factories import given_node, given_task, given_workflow, task_row
from tests.recovery_support import LONG_AGO, hasty

PENDING, CLAIMED, RUNNING = TaskStatus.PENDING, TaskStatus.CLAIMED, TaskStatus.RUNNING
STALE = {"claimed_at": LONG_AGO, "claim_expires_at": "2999-01-01"}
SWEEPING = WorkerRecoveryConfig(enabled=True, heartbeat_interval=1_000, sweep_threshold=2_000, sweep_interval=1_000)

Db = AsyncConnection[Any]


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


async def healthy_flow(db: Db) -> str:
    """A workflow whose only node has ended, and nobody has told it."""
    flow = await given_workflow(db, status="RUNNING", open_nodes=1, started_at=LONG_AGO)
    ended = {"result": '{"ok":1}', "completed_at": LONG_AGO, "updated_at": LONG_AGO}
    task = await given_task(db, status=TaskStatus.COMPLETED, workflow_id=flow, **ended)
    await given_node(db, flow, status="ENQUEUED", task_id=task)
    return flow


async def ends(db: Db, ids: dict[str, str]) -> dict[str, str]:
    return {task_id: (await task_row(db, task_id))["status"] for task_id in ids}


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "failed and will be retried" in r.getMessage() or r.exc_info]


async def clear(db: Db) -> None:
    """Row by row: to truncate a table makes new files for it and each of its indexes."""
    tables = (
        "task_attempts",
        "workflow_tasks",
        "workflows",
        "tasks",
        "workers",
        "heartbeats",
        "worker_states",
        "waiting",
    )
    for table in (*tables, "meta"):
        await db.execute(SQL("DELETE FROM {}").format(Identifier(f"horsies_{table}")))
