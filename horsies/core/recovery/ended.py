"""Tasks of workflows that recovery or expiry has ended: they are reported after the commit, so that their workflows are
advanced at once (R-57). If a report is lost, reconciliation finds them (R-30).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from horsies.core.lifecycle.recovery import InFlight
from horsies.core.store.tasks import Expired

EndedNode: TypeAlias = tuple[str, str]  # the ids of the task and of its workflow
OnEnded: TypeAlias = Callable[[Iterable[EndedNode]], None]


def nobody(ended: Iterable[EndedNode]) -> None:
    """Report to nobody: reconciliation will find the tasks."""


def of_workflows(tasks: Iterable[InFlight | Expired]) -> list[EndedNode]:
    """The tasks that belong to workflows. Some of them may only have returned to the queue; advancing ignores those."""
    return [
        (task.task_id if isinstance(task, InFlight) else task.id, task.workflow_id)
        for task in tasks
        if task.workflow_id is not None
    ]
