"""Turns rows into the results that the caller of a handle gets (F-84, F-85). Pure; a stored text that cannot be read is
an error result too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from horsies.core.brokers.endings import AnyResult, read_text
from horsies.core.brokers.results import describe
from horsies.core.brokers.waiter import TimedOut, Unreachable, WorkflowEnding
from horsies.core.codec.results import ResultCodec
from horsies.core.models.tasks import (
    BuiltInTaskCode,
    OperationalErrorCode,
    OutcomeCode,
    RetrievalCode,
    TaskError,
    TaskResult,
)
from horsies.core.models.workflow.results import HandleErrorCode, HandleOperationError, WorkflowTaskInfo
from horsies.core.store.workflow_reads import NodeRow, StoredNode, WorkflowEnded
from horsies.core.types.result import Ok
from horsies.core.types.status import WorkflowStatus, WorkflowTaskStatus

CodecOf: TypeAlias = Callable[[StoredNode], ResultCodec | None]


def workflow_result(workflow_id: str, ending: WorkflowEnding, codec_of: CodecOf) -> AnyResult:
    """The result of waiting for a workflow. `all_results` makes that of a COMPLETED workflow without an output node."""
    match ending:
        case TimedOut():
            why = f"workflow {workflow_id} did not end in time; it may still be running"
            return failed(RetrievalCode.WAIT_TIMEOUT, why)
        case Unreachable(problem):
            return failed(OperationalErrorCode.BROKER_ERROR, f"the database could not be queried: {describe(problem)}")
        case WorkflowEnded(status=None):
            return not_found(workflow_id)
        case WorkflowEnded(status=WorkflowStatus.PAUSED):
            return failed(OutcomeCode.WORKFLOW_PAUSED, f"workflow {workflow_id} is paused; resume() lets it continue")
        case WorkflowEnded(status=WorkflowStatus.CANCELLED):
            return failed(OutcomeCode.WORKFLOW_CANCELLED, f"workflow {workflow_id} was cancelled")
        case WorkflowEnded(status=WorkflowStatus.COMPLETED, output=StoredNode() as output):
            return node_result(output, codec_of(output))
        case WorkflowEnded(status=WorkflowStatus.COMPLETED):
            return TaskResult(ok=None)
        case WorkflowEnded():
            return _error_of(workflow_id, ending.error)


def node_result(node: StoredNode, codec: ResultCodec | None) -> AnyResult:
    """What is known about one node now."""
    if not node.status.is_terminal:
        return failed(RetrievalCode.RESULT_NOT_READY, f"node {node.node_id!r} is {node.status}")
    if node.result is not None:
        read = read_text(node.result, codec)
        if isinstance(read, Ok):
            return read.value
        problem = read.err_value
        return failed(problem.code, f"the stored result of node {node.node_id!r} cannot be read: {problem.message}")
    match node.status:
        case WorkflowTaskStatus.SKIPPED:
            data = {"dependency_index": node.task_index}
            return failed(OutcomeCode.UPSTREAM_SKIPPED, f"node {node.node_id!r} was skipped", data)
        case WorkflowTaskStatus.FAILED:
            return failed(OperationalErrorCode.WORKER_CRASHED, f"node {node.node_id!r} failed without a result")
        case _:
            return failed(RetrievalCode.RESULT_NOT_AVAILABLE, f"node {node.node_id!r} has no stored result")


def all_results(nodes: Iterable[StoredNode], codec_of: CodecOf) -> dict[str, AnyResult | None]:
    """The result of each node, None for a skipped one: the value of a workflow without an output node."""
    return {
        node.node_id: None if node.status is WorkflowTaskStatus.SKIPPED else node_result(node, codec_of(node))
        for node in nodes
    }


def ended_results(nodes: Iterable[StoredNode], codec_of: CodecOf) -> dict[str, AnyResult]:
    """The results of the nodes that have ended; that of a skipped node says so."""
    return {node.node_id: node_result(node, codec_of(node)) for node in nodes if node.status.is_terminal}


def info(row: NodeRow, codec_of: CodecOf) -> WorkflowTaskInfo:
    """A node for people and programs that inspect a workflow."""
    has_result = row.status.is_terminal and row.status is not WorkflowTaskStatus.SKIPPED
    node = row.stored()
    return WorkflowTaskInfo(
        node_id=row.node_id,
        index=row.task_index,
        name=row.task_name,
        status=row.status,
        result=node_result(node, codec_of(node)) if has_result else None,
        started_at=row.started_at,
        completed_at=row.completed_at,
    )


def not_found(workflow_id: str) -> AnyResult:
    return failed(RetrievalCode.WORKFLOW_NOT_FOUND, f"there is no workflow {workflow_id}")


def no_such_node(workflow_id: str, node_id: str | None) -> AnyResult:
    why = "the node has no id" if node_id is None else f"workflow {workflow_id} has no node {node_id!r}"
    return failed(RetrievalCode.TASK_NOT_FOUND, why)


def operation_failed(error: HandleOperationError) -> AnyResult:
    """The result for a query that failed."""
    if error.code is HandleErrorCode.WORKFLOW_NOT_FOUND:
        return not_found(error.workflow_id)
    return failed(OperationalErrorCode.BROKER_ERROR, f"the database could not be queried: {error.message}")


def failed(code: BuiltInTaskCode, message: str, data: Any = None) -> AnyResult:
    return TaskResult(err=TaskError(error_code=code, message=message, data=data))


def _error_of(workflow_id: str, stored: str | None) -> AnyResult:
    """The stored error of a FAILED workflow."""
    if stored is None:
        return failed(OutcomeCode.WORKFLOW_FAILED, f"workflow {workflow_id} failed")
    read = read_text(f'{{"err":{stored}}}', None)
    if isinstance(read, Ok):
        return read.value
    problem = read.err_value
    return failed(problem.code, f"the stored error of workflow {workflow_id} cannot be read: {problem.message}")
