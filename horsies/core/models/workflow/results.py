"""What starting a workflow and using its handle return: errors as values (F-81, F-87), and a node as its row describes
it (F-86). What a workflow does about errors (`OnError`) and how a node waits for several others (`Join`) are here too.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias, TypeVar

from horsies.core.models.failures import OperationFailed
from horsies.core.models.tasks import TaskError, TaskResult
from horsies.core.types import Err, Ok, WorkflowTaskStatus

T = TypeVar("T")
Join: TypeAlias = Literal["all", "any", "quorum"]


class OnError(StrEnum):
    """After the final failure of a node: continue with everything that does not depend on it, or pause until somebody
    resumes."""

    FAIL = "fail"
    PAUSE = "pause"


# Why a start during an import is refused: code that is imported must not start anything (T-47).
NOTHING_IS_STARTED = "nothing is started while modules are imported"


class WorkflowStartErrorCode(StrEnum):
    """Why a workflow was not started."""

    BROKER_NOT_CONFIGURED = "BROKER_NOT_CONFIGURED"
    VALIDATION_FAILED = "VALIDATION_FAILED"
    ENQUEUE_FAILED = "ENQUEUE_FAILED"
    INTERNAL_FAILED = "INTERNAL_FAILED"


@dataclass(frozen=True, slots=True)
class WorkflowStartError(OperationFailed):
    """A start that was not made, as far as is known. With ENQUEUE_FAILED, `retry_start` tries again under the same id,
    with the same `sent_at` and deadline."""

    code: WorkflowStartErrorCode
    workflow_name: str
    workflow_id: str
    sent_at: datetime | None = None
    good_until: datetime | None = None


WorkflowStartResult: TypeAlias = Ok[T] | Err[WorkflowStartError]


def no_broker(workflow_name: str, workflow_id: str | None) -> Err[WorkflowStartError]:
    """The error for starting a spec without an app."""
    message = f"workflow {workflow_name!r}: the spec has no broker; make it with app.workflow(...) or a build(app)"
    code = WorkflowStartErrorCode.BROKER_NOT_CONFIGURED
    return Err(WorkflowStartError(code, message, workflow_name, workflow_id or str(uuid.uuid4())))


class HandleErrorCode(StrEnum):
    """Why an operation of a handle failed."""

    WORKFLOW_NOT_FOUND = "WORKFLOW_NOT_FOUND"
    DB_OPERATION_FAILED = "DB_OPERATION_FAILED"
    LOOP_RUNNER_FAILED = "LOOP_RUNNER_FAILED"
    INTERNAL_FAILED = "INTERNAL_FAILED"


@dataclass(frozen=True, slots=True)
class HandleOperationError(OperationFailed):
    """An operation on a workflow that was not made, as far as is known."""

    code: HandleErrorCode
    workflow_id: str


HandleResult: TypeAlias = Ok[T] | Err[HandleOperationError]


@dataclass(frozen=True, slots=True)
class WorkflowTaskInfo:
    """A node of a workflow. `result` is set once the node has one; it is None for a skipped node."""

    node_id: str
    index: int
    name: str
    status: WorkflowTaskStatus
    result: TaskResult[Any, TaskError] | None
    started_at: datetime | None
    completed_at: datetime | None
