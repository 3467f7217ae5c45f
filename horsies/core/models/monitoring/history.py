"""What monitoring says about the past: what people did, and statistics by time. Plain values; `core/monitoring` makes
them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from horsies.core.models.monitoring.tasks import ErrorCategory


class AuditOutcome(StrEnum):
    """What came of an action. One that has only begun was interrupted, or is under way: it is not known whether it was
    done."""

    BEGUN = "begun"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what, when, to what, and what came of it. `outcome` is a member of `AuditOutcome`, or a word of a newer
    version. Of many ids only the first `audit.MOST_IDS` are kept."""

    audit_id: int
    at: datetime
    ended_at: datetime | None
    actor: str
    action: str
    target_kind: str
    target_ids: tuple[str, ...]
    outcome: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditPage:
    """The newest entries first. `next_cursor`, as `after`, continues the list; it is None at the end. `is_partial`: the
    search stopped before it had found a full page or the end."""

    items: tuple[AuditEntry, ...]
    next_cursor: str | None = None
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class RollupPoint:
    """What was counted from `at` on, for one step. Times are in seconds, and None if nothing ended. What was waiting
    and running is the most that was seen; it is None if nobody looked."""

    at: datetime
    completed: int = 0
    failed: int = 0
    retried: int = 0
    expired: int = 0
    cancelled: int = 0
    wait_p50: float | None = None
    wait_p95: float | None = None
    run_p50: float | None = None
    run_p95: float | None = None
    waiting: int | None = None
    oldest_due_seconds: float | None = None
    running: int | None = None


@dataclass(frozen=True, slots=True)
class RollupSeries:
    """Points from `since` until `until`, without gaps. If there were more rows than are looked at, the series begins
    later than asked for, and is not complete."""

    since: datetime
    until: datetime
    step_seconds: float
    points: tuple[RollupPoint, ...]
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Tasks of one name that failed with one code: how many, when first and last, how many in each step of the trend,
    and one that still exists. A time that is not exact is the beginning of a span of the statistics. `rerun`: so many
    of the last ones, as far as they were looked at, were sent again since."""

    task_name: str
    error_code: str
    error_category: ErrorCategory | None
    count: int
    first_seen: datetime
    last_seen: datetime
    trend: tuple[int, ...]
    example_task_id: str | None
    first_is_exact: bool = False
    last_is_exact: bool = False
    rerun: int = 0


@dataclass(frozen=True, slots=True)
class FailureReport:
    """The failures from `since` until `until`, the most frequent groups first."""

    since: datetime
    until: datetime
    step_seconds: float
    groups: tuple[FailureGroup, ...]
    is_complete: bool = True
