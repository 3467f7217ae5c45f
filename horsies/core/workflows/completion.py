"""How a workflow ends when all its nodes have ended: COMPLETED or FAILED, with which result or error (F-42, F-43, F-75,
F-96).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from horsies.core.codec.serde import serialize_error_payload
from horsies.core.models.codes import BuiltInTaskCode, OutcomeCode
from horsies.core.models.tasks import TaskError, TaskResult
from horsies.core.types.status import WorkflowStatus, WorkflowTaskStatus
from horsies.core.workflows.ends import error_of
from horsies.core.workflows.inputs import NO_RESULT
from horsies.core.workflows.settling import Flow


class Closing(NamedTuple):
    """A node that affects how its workflow ends."""

    workflow_id: str
    task_index: int
    status: WorkflowTaskStatus
    result: str | None
    error_code: str | None
    completed_at: datetime | None


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
        return ended_by(OutcomeCode.WORKFLOW_EXPIRED, "The deadline of the workflow passed before all its nodes ended.")
    if flow.success_policy is not None:
        return _by_policy(flow, nodes)
    if error is not None:
        return Conclusion(WorkflowStatus.FAILED, f'{{"err":{error}}}', error, code)
    failed = _first_failed(nodes.values())
    return _completed(flow, nodes) if failed is None else _failed_with(failed)


def ended_by(code: BuiltInTaskCode, message: str) -> Conclusion:
    """A workflow that was ended before its nodes."""
    result = serialize_error_payload(TaskResult(err=TaskError(error_code=code, message=message)))
    status = WorkflowStatus.CANCELLED if code is OutcomeCode.WORKFLOW_CANCELLED else WorkflowStatus.FAILED
    return Conclusion(status, result, error_of(result), code.value)


def _by_policy(flow: Flow, nodes: Mapping[int, Closing]) -> Conclusion:
    cases: list[list[int]] = (flow.success_policy or {}).get("cases", [])
    for case in cases:
        if all(index in nodes and nodes[index].status is WorkflowTaskStatus.COMPLETED for index in case):
            return _completed(flow, nodes)
    required = {index for case in cases for index in case}
    failed = _first_failed(nodes[index] for index in required if index in nodes)
    if failed is not None:
        return _failed_with(failed)
    return ended_by(OutcomeCode.WORKFLOW_SUCCESS_CASE_NOT_MET, "None of the success cases was met.")


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
        return ended_by(OutcomeCode.WORKFLOW_FAILED, f"The node {node.task_index} failed without a result.")
    return Conclusion(WorkflowStatus.FAILED, node.result, error, node.error_code)
