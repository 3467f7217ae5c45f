"""The arrows of the task state diagram that end or return a claim, as values.

A move says what should happen to one claimed task; `store.tasks.apply` makes it under the claim's fence.
`lifecycle.retry` and the services decide which move to make. Claiming, starting and the arrows that need no claim
(insert, expire a waiting task, cancel) are statements of the store without a value here.
"""

from dataclasses import dataclass
from typing import TypeAlias

from horsies.core.types.status import TaskAttemptOutcome


@dataclass(frozen=True, slots=True)
class Claim:
    """One worker's hold on one task. The owner is the worker that applies the move."""

    task_id: str
    claim_seq: int


@dataclass(frozen=True, slots=True)
class Complete:
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
    """RUNNING → PENDING, to run again after `delay_s` (L-12; with outcome WORKER_FAILURE L-14; without counting the
    attempt L-16).

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
class Expire:
    """CLAIMED → EXPIRED: the deadline passed before user code started (L-08)."""

    claim: Claim
    result: str


Move: TypeAlias = Complete | Fail | Retry | Requeue | Expire
