"""One typed function per statement that looks for tasks to recover. Other modules decide what becomes of them;
`store.tasks.apply` moves them, like all tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from psycopg.rows import dict_row

from horsies.core.lifecycle.recovery import InFlight
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.sql import load
from horsies.core.store.arrays import numbers, texts
from horsies.core.store.tasks import Connection
from horsies.core.types.status import TaskStatus

STEP = 500  # rows that one transaction of a maintenance pass handles
LOOK = 10_000  # rows that one look finds: it reads all that is in flight, so it is worth many steps


async def find_stale(
    conn: Connection,
    status: TaskStatus,
    recovery: RecoveryConfig,
    sweeping: WorkerRecoveryConfig,
    *,
    threshold: timedelta | None = None,
    most: int | None = LOOK,
) -> list[InFlight]:
    """The CLAIMED or RUNNING tasks that have been silent for too long, the longest silence first. A `threshold` makes
    it a manual query: it is used unchanged, for enrolled tasks as well (R-63, R-91)."""
    is_running = status is TaskStatus.RUNNING
    usual = recovery.running_stale_threshold_ms if is_running else recovery.claimed_stale_threshold_ms
    params = {
        "status": status.value,
        "role": "runner" if is_running else "claimer",
        "threshold": timedelta(milliseconds=usual) if threshold is None else threshold,
        "as_given": threshold is not None,
        "finalizing": timedelta(milliseconds=recovery.finalizing_stale_threshold_ms),
        "sweep_threshold": sweeping.sweep_threshold,
        "multiplier": sweeping.resilient_sweep_threshold_multiplier,
        "resilient_flags": sweeping.resilient_job_flags,
        "most": most,
    }
    # Planned anew each time: on an empty table any index looks good, and the plan of a prepared statement is kept.
    cursor = await conn.execute(load("tasks/find_stale"), params, prepare=False)
    return [in_flight(row) for row in await cursor.fetchall()]


async def lock_stale(conn: Connection, found: Sequence[InFlight]) -> list[InFlight]:
    """Those of these tasks that are still silent, locked until the transaction ends. Rows that are locked elsewhere are
    skipped."""
    params = {
        **_claims(found),
        "heartbeats": texts([_stamp(task.last_heartbeat) for task in found]),
        "marks": texts([_stamp(task.finalizing_at) for task in found]),
    }
    cursor = await conn.execute(load("tasks/lock_stale"), params)
    mine = {row[0] for row in await cursor.fetchall()}
    return [task for task in found if task.task_id in mine]


def in_flight(row: Sequence[object]) -> InFlight:
    """A row of any statement that returns the columns of `InFlight` in order."""
    found = InFlight(*row)  # type: ignore[arg-type]
    return found._replace(status=TaskStatus(found.status))


async def lock_claims(conn: Connection, found: Sequence[InFlight]) -> set[str]:
    """The ids of these claims that have not changed, locked until the transaction ends. Rows that are locked elsewhere
    are skipped."""
    cursor = await conn.execute(load("tasks/lock_claims"), _claims(found))
    return {row[0] for row in await cursor.fetchall()}


async def overdue(conn: Connection) -> list[dict[str, Any]]:
    """Waiting tasks past their deadline."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("tasks/overdue"), prepare=False)
        return await cursor.fetchall()


async def tell_owners(conn: Connection, task_ids: Sequence[str]) -> None:
    """Notify the owners: an owner that is alive after all stops the code at once (D-61)."""
    await conn.execute(load("tasks/claim_lost"), {"ids": texts(task_ids)})


def _claims(found: Sequence[InFlight]) -> dict[str, str]:
    return {
        "ids": texts([task.task_id for task in found]),
        "claims": numbers([task.claim_seq for task in found]),
        "owners": texts([task.worker_id for task in found]),
        "statuses": texts([task.status.value for task in found]),
    }


def _stamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
