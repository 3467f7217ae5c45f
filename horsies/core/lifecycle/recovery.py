"""Decides what becomes of a task whose worker or child is gone (R-19, R-20, R-50 to R-52, R-58). Pure.

Every recovery decides on one of these moves; `core.recovery.transition` makes them under the fence of the claim.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from random import random
from typing import NamedTuple

from horsies.core.codec.serde import sanitize_text, serialize_error_payload
from horsies.core.lifecycle.moves import Claim, Expire, Fail, Move, Requeue, Retry
from horsies.core.lifecycle.retry import retry_or_fail
from horsies.core.models.tasks import OperationalErrorCode, OutcomeCode, RetryPolicy, TaskError, TaskOptions, TaskResult
from horsies.core.types.status import TaskAttemptOutcome, TaskStatus

RECOVERED = "Job recovered after worker interruption"


class Action(Enum):
    """What to do with the tasks of a dead worker or child."""

    REQUEUE = "requeue"  # as if it had never been claimed
    RETRY_OR_FAIL = "retry or fail"  # by its own policy
    WORKER_DEFAULT = "default"  # again after a delay, not charged
    RESCHEDULE = "reschedule"  # the same at a given time, with a given counter


class InFlight(NamedTuple):
    """A task that a worker holds, as it was when it was read."""

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
    recoveries: int = 0  # how often a dead worker has cost it an attempt
    finalizing_at: datetime | None = None  # its code has ended, and its result was being written

    @property
    def claim(self) -> Claim:
        return Claim(self.task_id, self.claim_seq)


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
    is_worn_out = most_recoveries is not None and task.recoveries >= most_recoveries
    if action is Action.RETRY_OR_FAIL or is_worn_out:
        return retry_or_fail(crash, policy_of(task.task_options), task.retry_count, task.max_retries, rand)
    return not_charged(crash, _later(delay_s), counter)


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


def _requeue(task: InFlight) -> Move:
    if task.is_overdue and task.status is TaskStatus.CLAIMED:
        return expired(task.claim, task.worker_id)
    return Requeue(task.claim)


def _later(delay_s: float) -> float:
    return max(0.0, delay_s)
