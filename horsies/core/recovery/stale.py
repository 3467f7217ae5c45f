"""Tasks without recent heartbeats: how the reaper and manual operations recover them (R-19, R-20, R-91).

One query finds many, which are then recovered in small steps, each in a separate transaction. The statement decides
which tasks are silent, `lifecycle.recovery` what becomes of them; the caller decides how long to continue.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from horsies.core.hooks import FailureReason, JobInterrupted
from horsies.core.lifecycle.recovery import Action, InFlight
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.recovery.asking import Asker
from horsies.core.recovery.connections import Connections
from horsies.core.recovery.transition import recover_in_parts, recover_tasks
from horsies.core.store import jobs, recovery
from horsies.core.store.recovery import LOOK, STEP
from horsies.core.types.status import TaskStatus

REASON = "no heartbeat"
_ACTIONS = {TaskStatus.CLAIMED: Action.REQUEUE, TaskStatus.RUNNING: Action.RETRY_OR_FAIL}


async def recover_stale(
    database: Connections,
    status: TaskStatus,
    config: RecoveryConfig,
    sweeping: WorkerRecoveryConfig,
    asker: Asker,
    *,
    me: str,
    threshold: timedelta | None = None,
) -> AsyncGenerator[list[InFlight], None]:
    """Recover the silent tasks of this status, the longest silence first; yield what each step has recovered. The
    caller can stop between two steps. `threshold` is given only by manual calls."""
    step = partial(_recover, database, action=_ACTIONS[status], asker=asker, me=me)
    while True:
        async with database.connection() as conn:
            found = await recovery.find_stale(conn, status, config, sweeping, threshold=threshold)
        count = 0
        for place in range(0, len(found), STEP):
            recovered = await recover_in_parts(found[place : place + STEP], step)
            count += len(recovered)
            yield recovered
        if len(found) < LOOK or not count:  # the end, or all of them are in somebody else's hands
            return


async def _recover(
    database: Connections, found: Sequence[InFlight], *, action: Action, asker: Asker, me: str
) -> list[InFlight]:
    """One step, which is one transaction, and its events."""
    async with database.connection() as conn, conn.transaction():
        silent = await recovery.lock_stale(conn, found)
        is_told = action is Action.RETRY_OR_FAIL and asker.has(JobInterrupted)
        # Before they are moved: afterwards nobody has them any more.
        views = await jobs.jobs(conn, [task.task_id for task in silent]) if silent and is_told else []
        recovered = await recover_tasks(conn, silent, action, REASON, me)
    ids = {task.task_id for task in recovered}
    interrupted = [job for job in views if job.id in ids]
    if interrupted:
        await asker.interrupted(interrupted, reason=FailureReason.WORKER_CRASHED)
    return recovered


async def list_stale(
    database: Connections, config: RecoveryConfig, sweeping: WorkerRecoveryConfig, threshold: timedelta
) -> list[dict[str, Any]]:
    """The RUNNING tasks without a heartbeat for longer than the threshold, for people to look at (R-91)."""
    async with database.connection() as conn:
        found = await recovery.find_stale(conn, TaskStatus.RUNNING, config, sweeping, threshold=threshold, most=None)
    return [
        {
            "id": task.task_id,
            "task_name": task.task_name,
            "worker_hostname": task.worker_hostname,
            "worker_pid": task.worker_pid,
            "worker_process_name": task.worker_process_name,
            "last_heartbeat": task.last_heartbeat,
            "started_at": task.started_at,
        }
        for task in found
    ]


async def list_overdue(database: Connections) -> list[dict[str, Any]]:
    """The PENDING tasks whose deadline has passed and that nobody has expired yet (R-91)."""
    async with database.connection() as conn:
        return await recovery.overdue(conn)
