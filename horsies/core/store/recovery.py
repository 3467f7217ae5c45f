"""A typed function per statement that looks for tasks to recover. What becomes of them is decided elsewhere; they are
moved by `store.tasks.apply`, like anybody's.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from horsies.core.lifecycle.moves import Claim
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.sql import load
from horsies.core.store.tasks import Connection
from horsies.core.types.status import TaskStatus

STEP = 500  # rows that one transaction of a maintenance pass handles


class StaleTask(NamedTuple):
    """A task whose signs of life have stopped, as it was when it was locked."""

    task_id: str
    claim_seq: int
    worker_id: str
    status: TaskStatus
    task_name: str
    queue_name: str
    task_options: str | None
    retry_count: int
    max_retries: int
    is_overdue: bool  # its deadline has passed
    workflow_id: str | None
    is_enrolled: bool
    started_at: datetime | None
    worker_hostname: str | None
    worker_pid: int | None
    worker_process_name: str | None
    last_heartbeat: datetime | None
    silence_s: float  # since its last sign of life, which may be its claim or its start

    @property
    def claim(self) -> Claim:
        return Claim(self.task_id, self.claim_seq)


async def lock_stale(
    conn: Connection,
    status: TaskStatus,
    recovery: RecoveryConfig,
    sweeping: WorkerRecoveryConfig,
    *,
    threshold: timedelta | None = None,
    most: int = STEP,
) -> list[StaleTask]:
    """The CLAIMED or RUNNING tasks that have been silent for too long, locked until the transaction ends.

    A `threshold` makes it a manual look: it holds as it is, for enrolled tasks as well (R-63, R-91)."""
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
    cursor = await conn.execute(load("tasks/lock_stale"), params, prepare=False)
    return [StaleTask(*row)._replace(status=TaskStatus(row[3])) for row in await cursor.fetchall()]
