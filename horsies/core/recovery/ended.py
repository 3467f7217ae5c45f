"""Tasks of workflows that recovery or expiry has ended: whoever did it tells, after the commit, so that their workflows
are advanced at once (R-57). If that word is lost, reconciliation finds them (R-30).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from horsies.core.lifecycle.recovery import InFlight
from horsies.core.store.tasks import Expired

EndedNode: TypeAlias = tuple[str, str]  # the ids of the task and of its workflow
OnEnded: TypeAlias = Callable[[Iterable[EndedNode]], None]


def nobody(ended: Iterable[EndedNode]) -> None:
    """There is nobody to tell: reconciliation will find them."""


def of_workflows(tasks: Iterable[InFlight | Expired]) -> list[EndedNode]:
    """Those of these that belong to workflows. One that only went back to the queue may be among them: advancing leaves
    it as it is."""
    return [
        (task.task_id if isinstance(task, InFlight) else task.id, task.workflow_id)
        for task in tasks
        if task.workflow_id is not None
    ]
