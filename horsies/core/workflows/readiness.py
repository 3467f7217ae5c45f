"""Whether a node may run, decided only from the counters of its dependencies (F-30)."""

from __future__ import annotations

from enum import Enum, auto


class Verdict(Enum):
    """What becomes of a waiting node."""

    WAIT = auto()
    READY = auto()
    SKIP = auto()


def verdict(
    join: str,
    min_success: int | None,
    allow_failed_deps: bool,
    *,
    total: int,
    completed: int,
    failed: int,
    skipped: int,
) -> Verdict:
    """`total` dependencies, and how many of them have ended in each way."""
    if total == 0:
        return Verdict.READY
    unsuccessful = failed + skipped
    if join == "all":
        if completed == total or (allow_failed_deps and completed + unsuccessful == total):
            return Verdict.READY
        return Verdict.SKIP if unsuccessful and not allow_failed_deps else Verdict.WAIT
    needed = 1 if join == "any" else min_success or total
    if completed >= needed:
        return Verdict.READY
    return Verdict.SKIP if total - unsuccessful < needed else Verdict.WAIT
