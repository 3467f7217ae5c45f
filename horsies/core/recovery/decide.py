"""Decides when a worker is dead (R-100), what happens to its tasks (R-50 to R-53), and with which move a task is
recovered (R-19, R-20, R-58).

All functions are pure. The registry, the system and the server provide the facts (`dead_workers.py`), hooks provide
answers (`hooks.py`), and `apply.py` makes the moves under the fence of the claim.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from random import random
from typing import NamedTuple

from horsies.core.codec.serde import sanitize_text, serialize_error_payload
from horsies.core.hooks import Decision, JobRecoveryResult, Reschedule
from horsies.core.models.tasks import OperationalErrorCode, OutcomeCode, RetryPolicy, TaskError, TaskOptions, TaskResult
from horsies.core.store.workers import Judge, Registered
from horsies.core.tasks.moves import Claim, Expire, Fail, InFlight, Move, Requeue, Retry, retry_or_fail
from horsies.core.types import TaskAttemptOutcome, TaskStatus

RECOVERED = "Job recovered after worker interruption"


class Death(Enum):
    """What the evidence says about the death of a worker."""

    UNPROVEN = "not proven"
    PROBABLE = "probably dead"  # it may only be cut off: tasks that it has claimed and not started go back
    CERTAIN = "certainly dead"  # it cannot come back


class Process(NamedTuple):
    """`is_there` is None if it is unknown."""

    is_there: bool | None
    has_ended: bool = False  # it is a zombie, which waits for its parent and does nothing more
    start: int | None = None  # in ticks since boot


def judge(worker: Registered, me: Judge, process: Process, *, is_lock_held: bool) -> Death:
    """A free lock alone proves nothing, because a connection may have been reset; a missing process whose session still
    exists proves nothing either."""
    if worker.worker_id == me.worker_id or is_lock_held:
        return Death.UNPROVEN
    if is_in_sight(worker, me) and is_gone(process, worker.process_start):
        return Death.CERTAIN
    return Death.PROBABLE if worker.is_silent else Death.UNPROVEN


def is_in_sight(worker: Registered, me: Judge) -> bool:
    """Whether the two see the same processes. Unknown facts prove nothing."""
    theirs = (worker.hostname, worker.boot_id, worker.pid_namespace)
    return None not in theirs and theirs == (me.hostname, me.boot_id, me.pid_namespace)


def is_gone(process: Process, start: int | None = None) -> bool:
    """Whether the process that began at `start` has ended. Its pid may belong to another process by now."""
    if process.is_there is None:
        return False
    if not process.is_there or process.has_ended:
        return True
    return start is not None and process.start is not None and process.start != start


class TaskShares(NamedTuple):
    """The tasks of a dead worker by what becomes of them."""

    requeued: list[InFlight]  # their code had not begun
    crashed: list[InFlight]  # they follow their own policy
    swept: list[InFlight]  # they follow the sweep procedure
    spared: list[InFlight]  # their process is still there


def share_out(
    tasks: Iterable[InFlight], is_child_gone: Callable[[int | None], bool], was_noted: Callable[[Claim], bool]
) -> TaskShares:
    """`was_noted`: whether a child had noted that it was about to call this task's function."""
    shares = TaskShares([], [], [], [])
    for task in tasks:
        is_running = task.status is TaskStatus.RUNNING
        if is_running and not is_child_gone(task.worker_pid):
            shares.spared.append(task)
        elif is_running and not was_noted(task.claim):
            shares.requeued.append(task)
        elif task.is_enrolled:
            shares.swept.append(task)
        elif is_running:
            shares.crashed.append(task)
        else:
            shares.requeued.append(task)
    return shares


class Action(Enum):
    """What to do with the tasks of a dead worker or child."""

    REQUEUE = "requeue"  # as if it had never been claimed
    RETRY_OR_FAIL = "retry or fail"  # by its own policy
    WORKER_DEFAULT = "default"  # run again after a delay, without charging the attempt
    RESCHEDULE = "reschedule"  # the same at a given time, with a given counter


class SweepDecision(NamedTuple):
    """What happens to some tasks; the delay counts from the time of the transaction."""

    action: Action
    delay_s: float
    attempts: int | None = None


@dataclass(frozen=True, slots=True)
class SweepDecisions:
    """All verdicts: what happens to which tasks, which are left alone, and which were not asked about."""

    groups: dict[SweepDecision, list[InFlight]] = field(default_factory=dict)
    skipped: list[InFlight] = field(default_factory=list)
    unasked: list[InFlight] = field(default_factory=list)


def sweep_decisions(
    tasks: Sequence[InFlight], decisions: Mapping[str, Decision | None], *, now: datetime, age_s: float, delay_s: float
) -> SweepDecisions:
    """Sort the tasks by their decisions. `now` is `age_s` ago, because the hooks took that long."""
    found = SweepDecisions()
    default = SweepDecision(Action.WORKER_DEFAULT, delay_s + age_s)
    for task in tasks:
        match decisions.get(task.task_id):
            case None:
                found.unasked.append(task)
            case JobRecoveryResult.Skip:
                found.skipped.append(task)
            case JobRecoveryResult.FailWithBackoff:
                # For a task that had not started, this is Default, and needs its delay.
                found.groups.setdefault(SweepDecision(Action.RETRY_OR_FAIL, default.delay_s), []).append(task)
            case Reschedule(run_at=run_at, attempts=attempts):
                wait_s = (run_at - now).total_seconds()
                found.groups.setdefault(SweepDecision(Action.RESCHEDULE, wait_s, attempts), []).append(task)
            case _:
                found.groups.setdefault(default, []).append(task)
    return found


def move_for(
    task: InFlight,
    action: Action,
    reason: str,
    *,
    delay_s: float = 0.0,
    attempts: int | None = None,
    most_recoveries: int | None = None,
    rand: Callable[[], float] = random,
) -> Move:
    """The move that recovers this task. `reason` says who is gone and how that is known."""
    if action is Action.REQUEUE:
        return _requeue(task)
    counter = None if attempts is None else min(attempts, task.max_retries)
    if task.status is TaskStatus.CLAIMED:  # nothing had begun: there is no attempt to charge or to fail
        return Requeue(task.claim, _later(delay_s), RECOVERED, counter=counter)
    crash = crashed(
        task.claim, reason, task.worker_id, task.worker_hostname, task.worker_pid, last_heartbeat=task.last_heartbeat
    )
    if action is Action.RETRY_OR_FAIL or is_last_chance(task.recoveries, most_recoveries):
        return retry_or_fail(crash, policy_of(task.task_options), task.retry_count, task.max_retries, rand)
    return not_charged(crash, _later(delay_s), counter)


def is_last_chance(recoveries: int, most: int | None) -> bool:
    """Whether the next death of its worker fails the task, unless its own policy retries it (R-58). Workers run such a
    task apart, so that it is not another one that kills them."""
    return most is not None and recoveries >= most


def _requeue(task: InFlight) -> Move:
    if task.is_overdue and task.status is TaskStatus.CLAIMED:
        return expired(task.claim, task.worker_id)
    return Requeue(task.claim)


def _later(delay_s: float) -> float:
    return max(0.0, delay_s)


def crashed(
    claim: Claim,
    reason: str,
    worker_id: str,
    hostname: str | None,
    pid: int | None,
    *,
    last_heartbeat: datetime | None = None,
) -> Fail:
    """The end of an attempt whose process is gone (L-15): the failure that a policy may turn into a retry."""
    reason = sanitize_text(reason)
    data = {
        "worker_id": worker_id,
        "worker_hostname": hostname,
        "worker_pid": pid,
        "last_heartbeat": None if last_heartbeat is None else last_heartbeat.isoformat(),
    }
    code = OperationalErrorCode.WORKER_CRASHED
    return Fail(
        claim,
        serialize_error_payload(TaskResult(err=TaskError(error_code=code, message=reason, data=data))),
        code.value,
        reason,
        outcome=TaskAttemptOutcome.WORKER_FAILURE,
        failed_reason=reason,
    )


def not_charged(crash: Fail, delay_s: float, counter: int | None = None) -> Retry:
    """RUNNING → PENDING without counting the attempt (L-16). If the deadline leaves no room, the task ends with the
    crash (L-22)."""
    return Retry(crash.claim, delay_s, otherwise=crash, charged=False, counter=counter, reason=RECOVERED)


def expired(claim: Claim, worker_id: str) -> Expire:
    """The deadline passed while the task was claimed and not started (L-08)."""
    error = TaskError(
        error_code=OutcomeCode.TASK_EXPIRED,
        message="The deadline passed before the task was started.",
        data={"task_id": claim.task_id, "worker_id": worker_id},
    )
    return Expire(claim, serialize_error_payload(TaskResult(err=error)))


def policy_of(task_options: str | None) -> RetryPolicy | None:
    """The stored retry policy; a text that cannot be read counts as no policy."""
    try:
        return TaskOptions.from_json(task_options).retry_policy
    except ValueError:
        return None
