"""What became of an action on many tasks, as a plain value. `core/monitoring/many.py` makes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from horsies.core.models.monitoring.tasks import TaskSummary


@dataclass(frozen=True, slots=True)
class BulkResult:
    """How many tasks were changed, and how many were left alone, by the code of the reason.

    Of a dry run, `changed` is how many tasks would be changed, or at least so many if it is not exact, and `examples`
    are the first of them. Of a group that is to be sent again, only the first `filters.MOST` tasks are asked whether
    they were sent again before; if there are more, it is not complete, and at most so many would be changed. Otherwise
    `changed_ids` are the first `many.MOST_IDS` of those that were changed, and `new_ids` are the ids of the new tasks
    that a rerun has made of them. If it is not complete, there may be more, and the same call continues.
    """

    dry_run: bool
    changed: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    changed_ids: tuple[str, ...] = ()
    new_ids: tuple[str, ...] = ()
    examples: tuple[TaskSummary, ...] = ()
    is_exact: bool = True
    is_complete: bool = True
