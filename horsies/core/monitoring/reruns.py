"""Sends a task again that ended without success (M-49).

One statement copies it; if nothing was copied, a second statement looks for the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from horsies.core.brokers.hub import can_exist
from horsies.core.monitoring.actions import TaskActionError, TaskActionErrorCode, action_failed
from horsies.core.producer.ids import new_task_id
from horsies.core.store import reruns
from horsies.core.types.result import Err, Ok
from horsies.core.types.status import TaskStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker


@dataclass(frozen=True, slots=True)
class TaskRerun:
    """The new task, and the one it repeats."""

    task_id: str
    rerun_of: str


TaskRerunResult: TypeAlias = Ok[TaskRerun] | Err[TaskActionError]


async def rerun_task(broker: PostgresBroker, task_id: str) -> TaskRerunResult:
    """Send a FAILED, CANCELLED or EXPIRED task again as a new task, due at once. The old row does not change."""
    try:
        return await broker.bridge.call(partial(_rerun, broker, task_id))
    except Exception as problem:
        return action_failed(task_id, problem, broker.config)


async def _rerun(broker: PostgresBroker, task_id: str) -> TaskRerunResult:
    if not can_exist(task_id):
        return Err(why_not(task_id, None))
    async with broker.hub.connection() as conn:
        while not await reruns.rerun(conn, task_id, new_id := new_task_id()):
            found = await reruns.why_not_rerun(conn, task_id)
            if not _can_be_rerun(found):
                return Err(why_not(task_id, found))
    return Ok(TaskRerun(new_id, task_id))


def _can_be_rerun(found: tuple[Any, ...] | None) -> bool:
    """The task ended between the two statements: there is no reason to report, so copying is tried again."""
    return found is not None and found[1] is None and found[0] in ("FAILED", "CANCELLED", "EXPIRED")


def why_not(task_id: str, found: tuple[Any, ...] | None) -> TaskActionError:
    """Why a task is not sent again; `found` is its state and its workflow."""
    if found is None:
        return TaskActionError(TaskActionErrorCode.TASK_NOT_FOUND, f"there is no task {task_id}", task_id)
    status, workflow_id = TaskStatus(found[0]), found[1]
    if workflow_id is not None:
        why = f"task {task_id} belongs to workflow {workflow_id}; retry the node there"
        return TaskActionError(TaskActionErrorCode.TASK_IS_WORKFLOW_TASK, why, task_id, status)
    if status is TaskStatus.COMPLETED:
        why = f"task {task_id} has succeeded; send a new task to run it again"
        return TaskActionError(TaskActionErrorCode.TASK_HAS_COMPLETED, why, task_id, status)
    why = f"task {task_id} is {status.value}: only a task that has ended can be sent again"
    return TaskActionError(TaskActionErrorCode.TASK_HAS_NOT_ENDED, why, task_id, status)
