"""What monitoring says about the past: what people did, and statistics by time. Plain values; `core/monitoring` makes
them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


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
