"""How nodes end: with the result of their task, with that of their child workflow, or with a result made by the engine
if there is none (F-22, F-62, R-32).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from horsies.core.codec.serde import serialize_error_payload
from horsies.core.models.codes import BuiltInTaskCode, OperationalErrorCode, OutcomeCode, RetrievalCode
from horsies.core.models.tasks import SubWorkflowError, SubWorkflowSummary, TaskError, TaskResult
from horsies.core.types.status import TaskStatus, WorkflowStatus, WorkflowTaskStatus


@dataclass(frozen=True, slots=True)
class End:
    """The final state of a node. `result` is the JSON of a `TaskResult`, and None for a skipped node."""

    status: WorkflowTaskStatus
    result: str | None = None
    error_code: str | None = None
    summary: str | None = None  # of a child workflow


SKIPPED = End(WorkflowTaskStatus.SKIPPED)


def failure(code: BuiltInTaskCode, message: str) -> End:
    """The end of a node that failed without its own result."""
    error = TaskError(error_code=code, message=message)
    return End(WorkflowTaskStatus.FAILED, serialize_error_payload(TaskResult(err=error)), code.value)


_MISSING: dict[TaskStatus, tuple[BuiltInTaskCode, str]] = {
    TaskStatus.FAILED: (OperationalErrorCode.WORKER_CRASHED, "The task failed without a result."),
    TaskStatus.CANCELLED: (OutcomeCode.TASK_CANCELLED, "The task was cancelled."),
    TaskStatus.COMPLETED: (RetrievalCode.RESULT_NOT_AVAILABLE, "The task completed, but its result is missing."),
    TaskStatus.EXPIRED: (OutcomeCode.TASK_EXPIRED, "The deadline of the task passed before it started."),
}
LOST = failure(RetrievalCode.RESULT_NOT_AVAILABLE, "The row of the task no longer exists.")
CANCELLED = failure(OutcomeCode.TASK_CANCELLED, "The task was cancelled with its workflow.")


def of_task(status: TaskStatus, result: str | None, error_code: str | None) -> End:
    """The end of a node whose task has ended in this way. COMPLETED requires an ok result (F-22)."""
    if result is None:
        return failure(*_MISSING[status])
    if status is TaskStatus.COMPLETED:
        return End(WorkflowTaskStatus.COMPLETED, result)
    return End(WorkflowTaskStatus.FAILED, result, error_code or _code_of(result))


def of_child(
    child_id: str, status: WorkflowStatus, result: str | None, error: str | None, counts: tuple[int, int, int, int]
) -> End:
    """The end of a node whose child workflow has ended in this way (F-62)."""
    total, completed, failed, skipped = counts
    summary = SubWorkflowSummary(
        status=status,
        output=_output(result) if status is WorkflowStatus.COMPLETED else None,
        total_tasks=total,
        completed_tasks=completed,
        failed_tasks=failed,
        skipped_tasks=skipped,
        error_summary=_message(error),
    )
    text = summary.model_dump_json()
    if status is WorkflowStatus.COMPLETED:
        return End(WorkflowTaskStatus.COMPLETED, result or '{"ok":null}', summary=text)
    is_cancelled = status is WorkflowStatus.CANCELLED
    code = OutcomeCode.WORKFLOW_CANCELLED if is_cancelled else OutcomeCode.SUBWORKFLOW_FAILED
    cause = f": {summary.error_summary.removesuffix('.')}" if summary.error_summary else ""
    failed_with = SubWorkflowError(
        error_code=code,
        message=f"The child workflow {child_id} " + ("was cancelled." if is_cancelled else f"failed{cause}."),
        sub_workflow_id=child_id,
        sub_workflow_summary=summary,
    )
    return End(
        WorkflowTaskStatus.FAILED, serialize_error_payload(TaskResult(err=failed_with)), code.value, summary=text
    )


def error_of(result: str | None) -> str | None:
    """The error in the JSON of a result, as JSON; None if there is none."""
    try:
        error = json.loads(result or "null")["err"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return json.dumps(error, separators=(",", ":"), ensure_ascii=False)


def _code_of(result: str) -> str | None:
    try:
        code = json.loads(result)["err"]["error_code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if isinstance(code, dict):
        code = next(iter(code.values()), None)
    return code if isinstance(code, str) else None


def _output(result: str | None) -> object:
    try:
        return json.loads(result or "null")["ok"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _message(error: str | None) -> str | None:
    """One line about the failure of the child: the code and the message of its error."""
    if error is None:
        return None
    try:
        given = json.loads(error)
        code = given.get("error_code")
        code = next(iter(code.values()), None) if isinstance(code, dict) else code
        return ": ".join(str(part) for part in (code, given.get("message")) if part) or None
    except (ValueError, AttributeError, RecursionError):
        return None
