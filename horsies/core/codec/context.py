"""What a task of a workflow can know about it: its place (`WorkflowMeta`), and results of earlier nodes
(`WorkflowContext`).

The engine puts both into the arguments of the task's row as JSON. Results stay JSON until the task asks for one; then
they are decoded by the type of the node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import JsonValue

from horsies.core.codec.shapes import CodecError, ResultCodec, TypeMismatchError
from horsies.core.errors import WorkflowContextMissingIdError
from horsies.core.models.codes import ContractCode, OperationalErrorCode
from horsies.core.models.tasks import SubWorkflowSummary, TaskError, TaskResult

if TYPE_CHECKING:
    from horsies.core.models.workflow.nodes import Node, NodeKey, SubWorkflowNode


T = TypeVar("T")


class RunContext:
    """What a parameter `ctx` is annotated with: the library fills it in (P-01). The kinds are in `tasks/context.py`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class WorkflowMeta:
    """The place of a task: its workflow and its node."""

    workflow_id: str
    task_index: int
    task_name: str


@dataclass(frozen=True, slots=True)
class WorkflowContext:
    """The results of the nodes in `workflow_ctx_from`, as they are when the task starts."""

    workflow_id: str
    task_index: int
    task_name: str
    results: Mapping[str, Any] = field(default_factory=dict, repr=False)  # by node id: JSON, or a TaskResult
    summaries: Mapping[str, Any] = field(default_factory=dict, repr=False)  # JSON, or a SubWorkflowSummary

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> WorkflowContext:
        """What the engine has written into the arguments of the task."""
        place = str(given["workflow_id"]), int(given["task_index"]), str(given["task_name"])
        return cls(*place, dict(given.get("results") or {}), dict(given.get("summaries") or {}))

    def result_for(self, node: Node[T] | NodeKey[T]) -> TaskResult[T, TaskError]:
        """The result of a node. `KeyError` if the node is not in `workflow_ctx_from`, or has no result yet
        (`has_result`)."""
        value = self._find(self.results, node, "result")
        return value if isinstance(value, TaskResult) else _read(value, node)

    def has_result(self, node: Node[Any] | NodeKey[Any]) -> bool:
        return _id_of(node) in self.results

    def summary_for(self, node: SubWorkflowNode[T] | NodeKey[T]) -> SubWorkflowSummary[T]:
        """How a child workflow ended. `KeyError` as for `result_for`."""
        value = self._find(self.summaries, node, "summary")
        if isinstance(value, SubWorkflowSummary):
            return value
        summary: SubWorkflowSummary[T] = SubWorkflowSummary.model_validate_json(json.dumps(value))
        if summary.output is None:
            return summary
        return summary.model_copy(update={"output": _read({"ok": summary.output}, node).ok})

    def has_summary(self, node: SubWorkflowNode[Any] | NodeKey[Any]) -> bool:
        return _id_of(node) in self.summaries

    def _find(self, values: Mapping[str, Any], node: Node[Any] | NodeKey[Any], what: str) -> Any:
        node_id = _id_of(node)
        if node_id not in values:
            raise KeyError(
                f"there is no {what} of node {node_id!r} here: the node is not in workflow_ctx_from, or has not ended"
            )
        return values[node_id]


def _id_of(node: Node[Any] | NodeKey[Any]) -> str:
    node_id = node.node_id
    if node_id is None:
        raise WorkflowContextMissingIdError(
            f"{node!r} has no id: it is in no workflow, or in several with different ids; give it a node_id"
        )
    return node_id


def _read(value: Any, node: Node[T] | NodeKey[T]) -> TaskResult[T, TaskError]:
    codec = node.result_codec() or _PLAIN
    try:
        return codec.decode(json.dumps(value))
    except CodecError as problem:
        is_type = isinstance(problem, TypeMismatchError) and problem.first == "ok"
        code = ContractCode.PYDANTIC_HYDRATION_ERROR if is_type else OperationalErrorCode.RESULT_DESERIALIZATION_ERROR
        return TaskResult(err=TaskError(error_code=code, message=f"result of node {node.node_id!r}: {problem}"))


_PLAIN = ResultCodec(JsonValue)
