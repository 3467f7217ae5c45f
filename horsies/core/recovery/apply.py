"""Recovers tasks: the one routine that every caller uses (R-55), and the recovery of tasks without recent heartbeats,
which the reaper and manual operations share (R-19, R-20, R-91).

One query finds many silent tasks, which are then recovered in small steps, each in a transaction of its own. The
statement says which tasks are silent, `decide.py` says what becomes of them, and the caller says how long to continue.
Recovered tasks of workflows are reported to the caller after the commit, so that their workflows are advanced at once
(R-57). If a report is lost, `reconcile.py` finds them (R-30).
"""

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, TypeAlias

from horsies.core import events, hooks, logs
from horsies.core.db import Connection, Connections, by_halves, describe, is_about_content
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.models.tasks import OperationalErrorCode
from horsies.core.recovery.decide import Action, move_for
from horsies.core.recovery.hooks import HookCaller
from horsies.core.store import odd_rows, recovery, task_reads, tasks, workers
from horsies.core.store.recovery import Expired
from horsies.core.tasks.moves import Expire, Fail, InFlight, Move, Requeue, Retry, SetAside
from horsies.core.text import counted
from horsies.core.types import TaskStatus

EndedNode: TypeAlias = tuple[str, str]  # the ids of the task and of its workflow
OnEnded: TypeAlias = Callable[[Iterable[EndedNode]], None]
Lend: TypeAlias = Callable[[], AbstractAsyncContextManager[Connection]]

log = logging.getLogger("horsies.recovery")

LINES = 20
REASON = "no heartbeat"

_WORDS: dict[type, str] = {
    Requeue: "returned to the queue",
    Retry: "to be retried",
    Fail: "failed",
    Expire: "expired",
    SetAside: "set aside",
}
_ACTIONS = {TaskStatus.CLAIMED: Action.REQUEUE, TaskStatus.RUNNING: Action.RETRY_OR_FAIL}


class MayJudge(Protocol):
    """Whether others may be judged by their silence (R-23)."""

    def may_judge(self) -> bool:
        """Whether the database has answered this worker for long enough."""

    async def may_still_judge(self, server_time: Callable[[], Awaitable[float]]) -> bool:
        """The same after somebody was found silent, with a look at the server's clock: it may have been set."""


async def is_really_silent(conn: Connection, pulse: MayJudge | None) -> bool:
    """Whether what was just found silent may be judged by that. The clock is read after the search, so that a clock
    that was set before the search, or during it, is noticed. A manual call has no pulse: people decide."""

    async def server_time() -> float:
        now, age_s = await workers.clock(conn)
        return now.timestamp() + age_s

    return pulse is None or await pulse.may_still_judge(server_time)


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


def _tell(recovered: Sequence[InFlight], moved: Mapping[str, type], reason: str, me: str) -> None:
    """Log how many tasks were recovered and how, and a line for each failed task, because nothing else logs it."""
    events.emit(
        "tasks.recovered",
        kinds=Counter(moved[task.task_id] for task in recovered),
        by=me,
        moved=[(task, moved[task.task_id]) for task in recovered],
    )
    counts = Counter(_WORDS[moved[task.task_id]] for task in recovered)
    log.warning(
        "%s recovered (%s): %s",
        counted(len(recovered), "task"),
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
        more = counted(len(failed) - LINES, "more task")
        log.error("%s failed in the same way", more, extra={"horsies": {"worker": me}})


def who_is_silent(task: InFlight) -> str:
    """For the record and for people: which worker is silent, and for how long."""
    process = "" if task.worker_pid is None else f", process {task.worker_pid} on {task.worker_hostname}"
    return f"worker {task.worker_id}{process}, silent for {task.silence_s:.1f} s"


async def recover_in_parts(
    found: Sequence[InFlight],
    recover: Callable[[Sequence[InFlight]], Awaitable[list[InFlight]]],
    lend: Lend,
    on_refused: Callable[[InFlight], None] = lambda task: None,
) -> list[InFlight]:
    """What `recover` could recover of these. A task that the database refuses does not keep the others back: it is set
    aside (L-19a), on a connection that `lend` lends, or reported if not even that is possible."""
    refused: list[tuple[InFlight, Exception]] = []
    parts = await by_halves(
        found, recover, is_refusal=is_about_content, give_up=lambda task, problem: refused.append((task, problem))
    )
    recovered = [task for part in parts for task in part]
    for task, problem in refused:
        fields = {"task_id": task.task_id, "task": task.task_name}
        log.warning("the database refuses to recover a task: %s", describe(problem), extra={"horsies": fields})
    if refused:
        async with lend() as conn:
            done = await odd_rows.set_aside(conn, [odd_rows.refused(task, describe(why)) for task, why in refused])
        aside = {one.claim for one in done}
        for task, _ in refused:
            recovered.append(task) if task.claim in aside else on_refused(task)
    return recovered


async def recover_stale(
    database: Connections,
    status: TaskStatus,
    config: RecoveryConfig,
    sweeping: WorkerRecoveryConfig,
    hook_caller: HookCaller,
    *,
    me: str,
    threshold: timedelta | None = None,
    pulse: MayJudge | None = None,
) -> AsyncGenerator[list[InFlight], None]:
    """Recover the silent tasks of this status, the longest silence first; yield what each step has recovered. The
    caller can stop between two steps. `threshold` is given only by manual calls, and `pulse` only by others."""
    step = partial(_recover, database, action=_ACTIONS[status], hook_caller=hook_caller, me=me)
    while True:
        async with database.connection() as conn:
            found = await recovery.find_stale(conn, status, config, sweeping, threshold=threshold)
            if found and not await is_really_silent(conn, pulse):
                return
        count = 0
        for place in range(0, len(found), recovery.STEP):
            recovered = await recover_in_parts(found[place : place + recovery.STEP], step, database.connection)
            count += len(recovered)
            yield recovered
        if len(found) < recovery.LOOK or not count:  # that was the end, or others are recovering all of them
            return


async def _recover(
    database: Connections, found: Sequence[InFlight], *, action: Action, hook_caller: HookCaller, me: str
) -> list[InFlight]:
    """One step, which is one transaction, and its events."""
    async with database.connection() as conn, conn.transaction():
        silent = await recovery.lock_stale(conn, found)
        is_told = action is Action.RETRY_OR_FAIL and hook_caller.has(hooks.JobInterrupted)
        # The views are loaded before the tasks are moved: afterwards their owner is no longer known.
        views = await task_reads.jobs(conn, [task.task_id for task in silent]) if silent and is_told else []
        recovered = await recover_tasks(conn, silent, action, REASON, me)
    ids = {task.task_id for task in recovered}
    interrupted = [job for job in views if job.id in ids]
    if interrupted:
        await hook_caller.interrupted(interrupted, reason=hooks.FailureReason.WORKER_CRASHED)
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


def of_workflows(tasks: Iterable[InFlight | Expired]) -> list[EndedNode]:
    """The tasks that belong to workflows. Some of them may only have returned to the queue; advancing ignores those."""
    return [
        (task.task_id if isinstance(task, InFlight) else task.id, task.workflow_id)
        for task in tasks
        if task.workflow_id is not None
    ]


def nobody(ended: Iterable[EndedNode]) -> None:
    """Report to nobody: reconciliation will find the tasks."""
