"""The arrows of the task state diagram that end or return a claim, as values; and whether a failed attempt is retried,
and when (T-75 to T-81).

A move says what should happen to one claimed task; `store/tasks.py` makes it under the claim's fence. `retry_or_fail`
is pure: the random factor is passed in. The services decide about the other moves. Claiming, starting and the arrows
that need no claim (insert, expire a waiting task, cancel) are statements of the store without a value here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import random
from typing import NamedTuple, TypeAlias

from horsies.core.models.tasks import BUILTIN_CODE_REGISTRY, RETRY_ELIGIBLE, RetryPolicy
from horsies.core.types import TaskAttemptOutcome, TaskStatus


class Claim(NamedTuple):
    """One worker's hold on one task. The owner is the worker that applies the move."""

    task_id: str
    claim_seq: int


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


class Complete(NamedTuple):  # a tuple, as `Claim`: of all moves this one is made most often
    """RUNNING → COMPLETED (L-10)."""

    claim: Claim
    result: str


@dataclass(frozen=True, slots=True)
class Fail:
    """RUNNING → FAILED (L-11; with outcome WORKER_FAILURE L-15)."""

    claim: Claim
    result: str
    error_code: str | None
    error_message: str | None = None
    outcome: TaskAttemptOutcome = TaskAttemptOutcome.FAILED
    failed_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """RUNNING → PENDING, to run again after `delay_s` (L-12; with outcome WORKER_FAILURE L-14; not counted L-16).

    Only the database's clock can say whether the deadline leaves room for the retry; if it does not, `otherwise` is
    made (L-22). A `counter` replaces `retry_count` (R-51), and a `reason` is recorded instead of that of the failure
    (R-50).
    """

    claim: Claim
    delay_s: float
    otherwise: Fail
    charged: bool = True
    counter: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Requeue:
    """CLAIMED → PENDING (L-13), or RUNNING → PENDING for a task whose code has not been called (L-13a).

    A sweep delays the task by `delay_s` and records the reason (R-50), and may replace its `counter` (R-51); a
    `failed_start` is counted (R-102).
    """

    claim: Claim
    delay_s: float | None = None
    reason: str | None = None
    failed_start: bool = False
    counter: int | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """RUNNING → PENDING for a task whose arguments this worker cannot read (L-13b): another one may. If it was first
    left longer ago than `grace_s`, which only the database can say, `otherwise` is made."""

    claim: Claim
    grace_s: float
    otherwise: Fail


@dataclass(frozen=True, slots=True)
class Expire:
    """CLAIMED → EXPIRED: the deadline passed before user code started (L-08)."""

    claim: Claim
    result: str


@dataclass(frozen=True, slots=True)
class SetAside:
    """PENDING → FAILED, CLAIMED → FAILED, RUNNING → FAILED: what is in its row keeps it from any other move (L-19a)."""

    claim: Claim
    reason: str


Move: TypeAlias = Complete | Fail | Retry | Requeue | Leave | Expire | SetAside
JITTER = 0.25
MOST_DOUBLINGS = 30  # a counter that somebody has set to a billion must not be computed with


def retry_or_fail(
    fail: Fail, policy: RetryPolicy | None, retry_count: int, max_retries: int, rand: Callable[[], float] = random
) -> Move:
    """The move for an attempt that ended with an error: a retry if the policy allows it, otherwise the failure
    (T-78)."""
    if policy is None or not may_retry(policy, fail.error_code, retry_count, max_retries):
        return fail
    return Retry(fail.claim, delay_s(policy, retry_count + 1, rand), otherwise=fail)


def may_retry(policy: RetryPolicy, error_code: str | None, retry_count: int, max_retries: int) -> bool:
    """Whether the code can be retried, is listed, and a retry is left."""
    if error_code is None or retry_count >= max_retries:
        return False
    if error_code in BUILTIN_CODE_REGISTRY and error_code not in RETRY_ELIGIBLE:
        return False
    return error_code in policy.codes


def delay_s(policy: RetryPolicy, retry: int, rand: Callable[[], float] = random) -> float:
    """Seconds to wait before retry number `retry` (1-based), with the policy's jitter (T-77)."""
    if policy.backoff_strategy == "exponential":
        seconds = float(policy.intervals[0] * 2 ** min(retry - 1, MOST_DOUBLINGS))
    else:
        seconds = float(policy.intervals[min(retry, len(policy.intervals)) - 1])
    return seconds * (1 - JITTER + 2 * JITTER * rand()) if policy.jitter else seconds
