"""The single routine that recovers tasks, for all callers (R-55)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from horsies.core import events, logs
from horsies.core.brokers.results import describe, is_about_content
from horsies.core.lifecycle.moves import Expire, Fail, Move, Requeue, Retry
from horsies.core.lifecycle.recovery import Action, InFlight, move_for
from horsies.core.models.tasks import OperationalErrorCode
from horsies.core.store import recovery, tasks
from horsies.core.store.halving import by_halves
from horsies.core.store.tasks import Connection
from horsies.core.types.status import TaskStatus

log = logging.getLogger("horsies.recovery")

LINES = 20
_WORDS: dict[type, str] = {
    Requeue: "returned to the queue",
    Retry: "to be retried",
    Fail: "failed",
    Expire: "expired",
}


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
    """Recover these claims, all in one transaction or savepoint; return those that had not changed. A second caller for
    the same claim finds the row changed or locked, and does nothing. `delay_s` counts from the transaction's own
    `now()`. For each task, `reason` is completed with the worker, the process and its silence."""
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
        moved: dict[str, type] = {}
        for owner in sorted(moves):
            moved |= await tasks.apply_kinds(conn, owner, moves[owner])
        recovered = [task for task in found if task.task_id in moved]
        interrupted = [task.task_id for task in recovered if task.status is TaskStatus.RUNNING]
        if interrupted:
            await recovery.tell_owners(conn, interrupted)
    if recovered:
        _tell(recovered, moved, reason, recovering_worker_id)
    return recovered


async def recover_in_parts(
    found: Sequence[InFlight],
    recover: Callable[[Sequence[InFlight]], Awaitable[list[InFlight]]],
    on_refused: Callable[[InFlight], None] = lambda task: None,
) -> list[InFlight]:
    """What `recover` could recover of these. A task that the database refuses does not keep the others back."""

    def give_up(task: InFlight, problem: Exception) -> None:
        fields = {"task_id": task.task_id, "task": task.task_name}
        log.error("the database refuses to recover a task: %s", describe(problem), extra={"horsies": fields})
        on_refused(task)

    parts = await by_halves(found, recover, is_refusal=is_about_content, give_up=give_up)
    return [task for part in parts for task in part]


def _tell(recovered: Sequence[InFlight], moved: Mapping[str, type], reason: str, me: str) -> None:
    """Log how many tasks were recovered and how, and a line for each failed task, because nothing else logs it."""
    events.emit("tasks.recovered", kinds=Counter(moved[task.task_id] for task in recovered))
    counts = Counter(_WORDS[moved[task.task_id]] for task in recovered)
    log.warning(
        "%s recovered (%s): %s",
        logs.counted(len(recovered), "task"),
        ", ".join(f"{count} {word}" for word, count in counts.most_common()),
        reason,
        extra={"horsies": {"worker": me, "count": len(recovered)}},
    )
    failed = [task for task in recovered if moved[task.task_id] is Fail]
    for task in failed[:LINES]:
        facts = {"task_id": task.task_id, "task": task.task_name, "queue": task.queue_name, "worker": me}
        why = f"{reason}: {who_is_silent(task)}"
        code = OperationalErrorCode.WORKER_CRASHED.value
        logs.log_failure(log, logging.ERROR, "task failed", facts, code=code, reason=why)
    if len(failed) > LINES:
        more = logs.counted(len(failed) - LINES, "more task")
        log.error("%s failed in the same way", more, extra={"horsies": {"worker": me}})


def who_is_silent(task: InFlight) -> str:
    """For the record and for people: which worker is silent, and for how long."""
    process = "" if task.worker_pid is None else f", process {task.worker_pid} on {task.worker_hostname}"
    return f"worker {task.worker_id}{process}, silent for {task.silence_s:.1f} s"
