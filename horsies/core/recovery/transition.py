"""The one routine that recovers tasks, whoever asks for it (R-55)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from horsies.core.lifecycle.moves import Move
from horsies.core.lifecycle.recovery import Action, InFlight, move_for
from horsies.core.store import recovery, tasks
from horsies.core.store.tasks import Connection
from horsies.core.types.status import TaskStatus

log = logging.getLogger("horsies.recovery")


async def recover_tasks(
    conn: Connection,
    found: Sequence[InFlight],
    action: Action,
    reason: str,
    recovering_worker_id: str,
    *,
    delay_s: float = 0.0,
    attempts: int | None = None,
    most_recoveries: int | None = None,
) -> list[InFlight]:
    """Recover these claims, all in one transaction or savepoint; return those that were still as they were found.

    A second caller for the same claim finds the row changed, or locked, and does nothing. `delay_s` counts from the
    transaction's own `now()`. For each task `reason` is completed with the worker, the process and its silence."""
    if not found:
        return []
    async with conn.transaction():
        mine = await recovery.lock_claims(conn, found)
        moves: dict[str, list[Move]] = {}
        for task in found:
            if task.task_id in mine:
                move = move_for(
                    task, action, f"{reason}: {who_is_silent(task)}",
                    delay_s=delay_s, attempts=attempts, most_recoveries=most_recoveries,
                )  # fmt: skip
                moves.setdefault(task.worker_id, []).append(move)
        moved: set[str] = set()
        for owner in sorted(moves):
            moved |= await tasks.apply(conn, owner, moves[owner])
        recovered = [task for task in found if task.task_id in moved]
        interrupted = [task.task_id for task in recovered if task.status is TaskStatus.RUNNING]
        if interrupted:
            await recovery.tell_owners(conn, interrupted)
    if recovered:
        log.warning(
            "%d tasks recovered (%s): %s", len(recovered), action.value, reason,
            extra={"horsies": {"worker": recovering_worker_id, "count": len(recovered)}},
        )  # fmt: skip
    return recovered


def who_is_silent(task: InFlight) -> str:
    """For the record and for people: whose silence this is about, and how long it has lasted."""
    process = "" if task.worker_pid is None else f", process {task.worker_pid} on {task.worker_hostname}"
    return f"worker {task.worker_id}{process}, silent for {task.silence_s:.1f} s"
