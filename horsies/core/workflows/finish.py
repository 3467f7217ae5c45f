"""How nodes and workflows end. Pure.

A node ends with the result of its task, of its child workflow or of its elements; if there is none, an error result is
made for it (F-22, F-62, F-95, R-32). When all nodes of a workflow have ended, it is COMPLETED or FAILED, with a result
or an error (F-42, F-43, F-75, F-96).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from horsies.core.codec.serde import serialize_error_payload
from horsies.core.models import codes
from horsies.core.models.tasks import SubWorkflowError, SubWorkflowSummary, TaskError, TaskResult
from horsies.core.store.workflows import Closing
from horsies.core.types import TaskStatus, WorkflowStatus, WorkflowTaskStatus
from horsies.core.workflows.inputs import NO_RESULT, mapped_result

if TYPE_CHECKING:
    from horsies.core.store.workflows import Flow


SHOWN = 20  # positions of failed elements in the error of a map


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """The final state of a node. `result` is the JSON of a `TaskResult`, and None for a skipped node."""

    status: WorkflowTaskStatus
    result: str | None = None
    error_code: str | None = None
    summary: str | None = None  # of a child workflow


SKIPPED = NodeEnd(WorkflowTaskStatus.SKIPPED)


def failure(code: codes.BuiltInTaskCode, message: str) -> NodeEnd:
    """The end of a node that failed without its own result."""
    error = TaskError(error_code=code, message=message)
    return NodeEnd(WorkflowTaskStatus.FAILED, serialize_error_payload(TaskResult(err=error)), code.value)


_MISSING: dict[TaskStatus, tuple[codes.BuiltInTaskCode, str]] = {
    TaskStatus.FAILED: (codes.OperationalErrorCode.WORKER_CRASHED, "The task failed without a result."),
    TaskStatus.CANCELLED: (codes.OutcomeCode.TASK_CANCELLED, "The task was cancelled."),
    TaskStatus.COMPLETED: (codes.RetrievalCode.RESULT_NOT_AVAILABLE, "The task completed, but its result is missing."),
    TaskStatus.EXPIRED: (codes.OutcomeCode.TASK_EXPIRED, "The deadline of the task passed before it started."),
}

LOST = failure(codes.RetrievalCode.RESULT_NOT_AVAILABLE, "The row of the task no longer exists.")

CANCELLED = failure(codes.OutcomeCode.TASK_CANCELLED, "The task was cancelled with its workflow.")


def end_of_task(status: TaskStatus, result: str | None, error_code: str | None) -> NodeEnd:
    """The end of a node whose task has ended in this way. COMPLETED requires an ok result (F-22)."""
    if result is None:
        return failure(*_MISSING[status])
    if status is TaskStatus.COMPLETED:
        return NodeEnd(WorkflowTaskStatus.COMPLETED, result)
    code = error_code or _code_in(_side(result, "err"))
    return NodeEnd(WorkflowTaskStatus.FAILED, result, code if isinstance(code, str) else None)


def end_of_child(
    child_id: str, status: WorkflowStatus, result: str | None, error: str | None, counts: tuple[int, int, int, int]
) -> NodeEnd:
    """The end of a node whose child workflow has ended in this way (F-62)."""
    total, completed, failed, skipped = counts
    summary = SubWorkflowSummary(
        status=status,
        output=_side(result, "ok") if status is WorkflowStatus.COMPLETED else None,
        total_tasks=total,
        completed_tasks=completed,
        failed_tasks=failed,
        skipped_tasks=skipped,
        error_summary=_message(error),
    )
    text = summary.model_dump_json()
    if status is WorkflowStatus.COMPLETED:
        return NodeEnd(WorkflowTaskStatus.COMPLETED, result or '{"ok":null}', summary=text)
    is_cancelled = status is WorkflowStatus.CANCELLED
    code = codes.OutcomeCode.WORKFLOW_CANCELLED if is_cancelled else codes.OutcomeCode.SUBWORKFLOW_FAILED
    cause = f": {summary.error_summary.removesuffix('.')}" if summary.error_summary else ""
    failed_with = SubWorkflowError(
        error_code=code,
        message=f"The child workflow {child_id} " + ("was cancelled." if is_cancelled else f"failed{cause}."),
        sub_workflow_id=child_id,
        sub_workflow_summary=summary,
    )
    return NodeEnd(
        WorkflowTaskStatus.FAILED, serialize_error_payload(TaskResult(err=failed_with)), code.value, summary=text
    )


def end_of_map(
    results: Sequence[tuple[WorkflowTaskStatus, str | None, str | None]], min_success: int | None
) -> NodeEnd:
    """The end of a map whose elements have all ended; `results` has status, result and error code of each, in the order
    of the list."""
    completed = sum(status is WorkflowTaskStatus.COMPLETED for status, _, _ in results)
    if completed >= (len(results) if min_success is None else min_success):
        return NodeEnd(WorkflowTaskStatus.COMPLETED, mapped_result([_seen(*one) for one in results]))
    failed = [place for place, (status, _, _) in enumerate(results) if status is WorkflowTaskStatus.FAILED]
    code = (results[failed[0]][2] if failed else None) or codes.OutcomeCode.UPSTREAM_SKIPPED.value
    error = TaskError(
        error_code=codes.BUILTIN_CODE_REGISTRY.get(code, code),
        message=f"{completed} of {len(results)} elements succeeded, {len(failed)} failed.",
        data={"failed": failed[:SHOWN], "succeeded": completed, "total": len(results)},
    )
    return NodeEnd(WorkflowTaskStatus.FAILED, serialize_error_payload(TaskResult(err=error)), code)


def error_of(result: str | None) -> str | None:
    """The error in the JSON of a result, as JSON; None if there is none."""
    error = _side(result, "err")
    return None if error is None else json.dumps(error, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Conclusion:
    """`result` is the JSON of a `TaskResult`; `error` is the JSON of its error, if it is one."""

    status: WorkflowStatus
    result: str
    error: str | None = None
    error_code: str | None = None


def deciding(flow: Flow) -> set[int]:
    """The indexes of the nodes that `conclude` needs, in addition to the first failed one."""
    found = set() if flow.output_index is None else {flow.output_index}
    for case in (flow.success_policy or {}).get("cases", []):
        found.update(case)
    return found


def conclude(flow: Flow, closings: Iterable[Closing], error: str | None = None, code: str | None = None) -> Conclusion:
    """The end of the workflow. `closings`: the deciding nodes and the first failed one, in any order; `error`: the
    first failure of all, if it has just happened and is not written yet."""
    nodes = {closing.task_index: closing for closing in closings}
    if flow.is_overdue:
        return ended_by(
            codes.OutcomeCode.WORKFLOW_EXPIRED, "The deadline of the workflow passed before all its nodes ended."
        )
    if flow.success_policy is not None:
        return _by_policy(flow, nodes)
    if error is not None:
        return Conclusion(WorkflowStatus.FAILED, f'{{"err":{error}}}', error, code)
    failed = _first_failed(nodes.values())
    return _completed(flow, nodes) if failed is None else _failed_with(failed)


def ended_by(code: codes.BuiltInTaskCode, message: str) -> Conclusion:
    """A workflow that was ended before its nodes."""
    result = serialize_error_payload(TaskResult(err=TaskError(error_code=code, message=message)))
    status = WorkflowStatus.CANCELLED if code is codes.OutcomeCode.WORKFLOW_CANCELLED else WorkflowStatus.FAILED
    return Conclusion(status, result, error_of(result), code.value)


def _side(result: str | None, side: str) -> Any:
    """The value or the error in the JSON of a result; None if the text is something else."""
    try:
        return json.loads(result or "null")[side]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _code_in(error: Any) -> object:
    """The code in an error that was read from JSON; that of a built-in one is in an object."""
    code = error.get("error_code") if isinstance(error, dict) else None
    return next(iter(code.values()), None) if isinstance(code, dict) else code


def _message(error: str | None) -> str | None:
    """One line about the failure of the child: the code and the message of its error."""
    given = _side(f'{{"err":{error}}}', "err")
    if not isinstance(given, dict):
        return None
    return ": ".join(str(part) for part in (_code_in(given), given.get("message")) if part) or None


def _seen(status: WorkflowTaskStatus, result: str | None, code: str | None) -> str | None:
    if status is not WorkflowTaskStatus.SKIPPED:
        return result
    error = TaskError(error_code=codes.OutcomeCode.UPSTREAM_SKIPPED, message="The element was skipped.")
    return serialize_error_payload(TaskResult(err=error))


def _by_policy(flow: Flow, nodes: Mapping[int, Closing]) -> Conclusion:
    cases: list[list[int]] = (flow.success_policy or {}).get("cases", [])
    for case in cases:
        if all(index in nodes and nodes[index].status is WorkflowTaskStatus.COMPLETED for index in case):
            return _completed(flow, nodes)
    required = {index for case in cases for index in case}
    failed = _first_failed(nodes[index] for index in required if index in nodes)
    if failed is not None:
        return _failed_with(failed)
    return ended_by(codes.OutcomeCode.WORKFLOW_SUCCESS_CASE_NOT_MET, "None of the success cases was met.")


def _first_failed(nodes: Iterable[Closing]) -> Closing | None:
    failed = [node for node in nodes if node.status is WorkflowTaskStatus.FAILED]
    return min(failed, key=lambda node: (node.completed_at is None, node.completed_at, node.task_index), default=None)


def _completed(flow: Flow, nodes: Mapping[int, Closing]) -> Conclusion:
    """The output is the result of the output node; a node that a policy allows to fail has none (F-62)."""
    output = None if flow.output_index is None else nodes.get(flow.output_index)
    has_output = output is not None and output.status is WorkflowTaskStatus.COMPLETED
    return Conclusion(WorkflowStatus.COMPLETED, (output.result if output and has_output else None) or NO_RESULT)


def _failed_with(node: Closing) -> Conclusion:
    error = error_of(node.result)
    if node.result is None or error is None:
        return ended_by(codes.OutcomeCode.WORKFLOW_FAILED, f"The node {node.task_index} failed without a result.")
    return Conclusion(WorkflowStatus.FAILED, node.result, error, node.error_code)
