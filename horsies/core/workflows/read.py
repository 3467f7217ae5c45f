"""What can be asked of a workflow by its id, and how the answers are read (F-83 to F-87).

Each `ask_…` is an async function that runs on the broker's loop and raises what goes wrong. `run` and `run_async` give
a caller of either kind its answer as a value. Plain functions make the results from the rows, in the caller's thread; a
stored text that cannot be read is an error result too. `mermaid` draws the graph of a workflow with the current states
of its nodes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError

from horsies.core.codec.shapes import ResultCodec
from horsies.core.db import BridgeError, as_result, facts_of, is_known
from horsies.core.errors import HorsiesError
from horsies.core.models import tasks
from horsies.core.models.workflow import registry
from horsies.core.models.workflow.nodes import TaskNode
from horsies.core.models.workflow.results import HandleErrorCode, HandleOperationError, WorkflowTaskInfo
from horsies.core.producer.hub import can_exist
from horsies.core.producer.waiter import (
    AnyResult,
    WorkflowEnding,
    failed,
    no_ending,
    patience_s,
    read_text,
    stored_result,
)
from horsies.core.store import workflow_reads
from horsies.core.store.workflow_reads import NodeRow, NoSuchWorkflow, StoredNode, WorkflowEnded, WorkflowRow
from horsies.core.tasks.definition import TaskDefinition
from horsies.core.types import WorkflowStatus, WorkflowTaskStatus, run_sync

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import KnowsTasks, PostgresBroker
    from horsies.core.models.workflow.spec import WorkflowSpec

T = TypeVar("T")
CodecOf: TypeAlias = Callable[[StoredNode], ResultCodec | None]

# A task is a box, a child workflow is a box with double sides, a map is a slanted box.
_SHAPES = {"TASK": ('["', '"]'), "SUBWORKFLOW": ('[["', '"]]'), "MAP": ('[/"', '"/]')}

_COLOURS = {
    WorkflowTaskStatus.PENDING: "fill:#f4f4f4,stroke:#999,color:#333",
    WorkflowTaskStatus.READY: "fill:#eef4ff,stroke:#5b8def,color:#222",
    WorkflowTaskStatus.ENQUEUED: "fill:#dbe8ff,stroke:#5b8def,color:#222",
    WorkflowTaskStatus.RUNNING: "fill:#fff3cd,stroke:#d39e00,color:#222",
    WorkflowTaskStatus.COMPLETED: "fill:#d7f5dd,stroke:#2e8540,color:#222",
    WorkflowTaskStatus.FAILED: "fill:#fddede,stroke:#c0392b,color:#222",
    WorkflowTaskStatus.SKIPPED: "fill:#f4f4f4,stroke:#999,color:#777,stroke-dasharray:4 3",
}
_SPECIAL = re.compile(r"[^\w .,:/()\-]", re.ASCII)


class Waited(NamedTuple):
    """How waiting for a workflow ended; it has nodes only if the workflow COMPLETED without an output node."""

    ending: WorkflowEnding
    nodes: list[StoredNode]


class WorkflowFamily(NamedTuple):
    """A workflow, the child workflows below it, and the nodes of all of them."""

    workflows: list[WorkflowRow]
    nodes: list[NodeRow]


@as_result(lambda problem, _broker, workflow_id, _operation: operation_error(workflow_id, problem))
async def run_async(
    broker: PostgresBroker, workflow_id: str, operation: Callable[[PostgresBroker, str], Awaitable[T]]
) -> T:
    """The answer for a caller on any loop."""
    if not can_exist(workflow_id):
        raise NoSuchWorkflow(workflow_id)
    return await broker.bridge.call(partial(operation, broker, workflow_id))


run = run_sync(run_async)


def operation_error(workflow_id: str, problem: Exception) -> HandleOperationError:
    """The error value for an exception."""
    match problem:
        case NoSuchWorkflow():
            code, message = HandleErrorCode.WORKFLOW_NOT_FOUND, f"there is no workflow {workflow_id}"
            return HandleOperationError(code, message, workflow_id)
        case BridgeError():
            code = HandleErrorCode.LOOP_RUNNER_FAILED
        case _ if is_known(problem):
            code = HandleErrorCode.DB_OPERATION_FAILED
        case _:
            code = HandleErrorCode.INTERNAL_FAILED
    return HandleOperationError(code, workflow_id=workflow_id, **facts_of(problem))


async def ask_status(broker: PostgresBroker, workflow_id: str) -> WorkflowStatus:
    async with broker.hub.connection() as conn:
        return await workflow_reads.status(conn, workflow_id)


async def ask_end(broker: PostgresBroker, workflow_id: str, *, timeout_ms: int | None) -> Waited:
    """Wait for the end, or a pause."""
    ending = await broker.hub.wait_for_workflow(workflow_id, patience_s(timeout_ms))
    nodes: list[StoredNode] = []
    if isinstance(ending, WorkflowEnded) and ending.status is WorkflowStatus.COMPLETED and ending.output is None:
        nodes = await ask_results(broker, workflow_id)
    return Waited(ending, nodes)


async def ask_node(broker: PostgresBroker, workflow_id: str, *, node_id: str) -> StoredNode | None:
    async with broker.hub.connection() as conn:
        return await workflow_reads.node(conn, workflow_id, node_id)


async def ask_results(broker: PostgresBroker, workflow_id: str) -> list[StoredNode]:
    async with broker.hub.connection() as conn:
        return await workflow_reads.results(conn, workflow_id)


async def ask_nodes(broker: PostgresBroker, workflow_id: str, *, with_results: bool) -> list[NodeRow]:
    async with broker.hub.connection() as conn:
        found = await workflow_reads.nodes(conn, [workflow_id], with_results=with_results)
    if not found:
        raise NoSuchWorkflow(workflow_id)
    return found


async def ask_family(broker: PostgresBroker, workflow_id: str) -> WorkflowFamily:
    async with broker.hub.connection() as conn:
        workflows = await workflow_reads.family(conn, workflow_id)
        ids = [workflow.id for workflow in workflows]
        return WorkflowFamily(workflows, await workflow_reads.nodes(conn, ids, with_results=False))


def workflow_result(workflow_id: str, ending: WorkflowEnding, codec_of: CodecOf) -> AnyResult:
    """The result of waiting for a workflow. `all_results` makes that of a COMPLETED workflow without an output node."""
    match ending:
        case WorkflowEnded(status=None):
            return not_found(workflow_id)
        case WorkflowEnded(status=WorkflowStatus.PAUSED):
            why = f"workflow {workflow_id} is paused; resume() lets it continue"
            return failed(tasks.OutcomeCode.WORKFLOW_PAUSED, why)
        case WorkflowEnded(status=WorkflowStatus.CANCELLED):
            return failed(tasks.OutcomeCode.WORKFLOW_CANCELLED, f"workflow {workflow_id} was cancelled")
        case WorkflowEnded(status=WorkflowStatus.COMPLETED, output=StoredNode() as output):
            return node_result(output, codec_of(output))
        case WorkflowEnded(status=WorkflowStatus.COMPLETED):
            return tasks.TaskResult(ok=None)
        case WorkflowEnded(error=None):
            return failed(tasks.OutcomeCode.WORKFLOW_FAILED, f"workflow {workflow_id} failed")
        case WorkflowEnded():
            return stored_result(f"error of workflow {workflow_id}", read_text(f'{{"err":{ending.error}}}', None))
        case _:
            return no_ending("workflow", workflow_id, ending)


def node_result(node: StoredNode, codec: ResultCodec | None) -> AnyResult:
    """What is known about one node now."""
    if not node.status.is_terminal:
        return failed(tasks.RetrievalCode.RESULT_NOT_READY, f"node {node.node_id!r} is {node.status}")
    if node.result is not None:
        return stored_result(f"result of node {node.node_id!r}", read_text(node.result, codec))
    match node.status:
        case WorkflowTaskStatus.SKIPPED:
            data = {"dependency_index": node.task_index}
            return failed(tasks.OutcomeCode.UPSTREAM_SKIPPED, f"node {node.node_id!r} was skipped", data)
        case WorkflowTaskStatus.FAILED:
            return failed(tasks.OperationalErrorCode.WORKER_CRASHED, f"node {node.node_id!r} failed without a result")
        case _:
            return failed(tasks.RetrievalCode.RESULT_NOT_AVAILABLE, f"node {node.node_id!r} has no stored result")


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
    return failed(tasks.RetrievalCode.WORKFLOW_NOT_FOUND, f"there is no workflow {workflow_id}")


def no_such_node(workflow_id: str, node_id: str | None) -> AnyResult:
    why = "the node has no id" if node_id is None else f"workflow {workflow_id} has no node {node_id!r}"
    return failed(tasks.RetrievalCode.TASK_NOT_FOUND, why)


def operation_failed(error: HandleOperationError) -> AnyResult:
    """The result for a query that failed."""
    if error.code is HandleErrorCode.WORKFLOW_NOT_FOUND:
        return not_found(error.workflow_id)
    return failed(tasks.OperationalErrorCode.BROKER_ERROR, f"the database could not be queried: {error.message}")


class NodeCodecs:
    """The codecs of the nodes of one workflow, from the tasks of the app and those of its spec."""

    def __init__(self, app: KnowsTasks | None, spec: WorkflowSpec[Any] | None) -> None:
        self._app = app
        self._spec = spec
        self._tasks: Mapping[str, TaskDefinition[..., Any]] | None = None
        self._found: dict[tuple[str, str], ResultCodec | None] = {}

    def of(self, node: StoredNode) -> ResultCodec | None:
        """The codec for the result of this node; None if its type is not known here."""
        key = (node.node_type, node.sub_workflow_key or node.task_name)
        if key not in self._found:
            self._found[key] = self._find(node)
        return self._found[key]

    def _find(self, node: StoredNode) -> ResultCodec | None:
        try:
            if node.node_type == "SUBWORKFLOW":
                definition = registry.find(node.sub_workflow_key or "")
                return None if definition is None else definition.output_codec()
            if (task := self._known().get(node.task_name)) is None:
                return None
            if node.node_type != "MAP":
                return task.codec.result
            of_element: Any = task.codec.ok_type
            return ResultCodec(list[tasks.TaskResult[of_element, tasks.TaskError]])
        except (HorsiesError, PydanticUserError, SchemaError):  # a type that cannot be resolved here
            return None

    def _known(self) -> Mapping[str, TaskDefinition[..., Any]]:
        if self._tasks is None:
            nodes = () if self._spec is None else self._spec.tasks
            of_spec = {node.name: node.fn for node in nodes if isinstance(node, TaskNode)}
            self._tasks = {**({} if self._app is None else self._app.tasks), **of_spec}
        return self._tasks


def mermaid(rows: Sequence[NodeRow]) -> str:
    """A flowchart from top to bottom. The elements of a map are counted, not drawn."""
    nodes = [row for row in rows if row.node_type != "ELEMENT"]
    elements: dict[int, Counter[WorkflowTaskStatus]] = {}
    for row in rows:
        if row.map_index is not None:
            elements.setdefault(row.map_index, Counter())[row.status] += 1
    lines = ["flowchart TD"]
    lines += [_drawn(node, elements.get(node.task_index)) for node in nodes]
    lines += [f"    n{source} --> n{node.task_index}" for node in nodes for source in node.dependencies]
    shown = {node.status for node in nodes}
    lines += [f"    classDef {status} {style}" for status, style in _COLOURS.items() if status in shown]
    return "\n".join(lines) + "\n"


def _drawn(node: NodeRow, elements: Counter[WorkflowTaskStatus] | None) -> str:
    opening, closing = _SHAPES.get(node.node_type, _SHAPES["TASK"])
    state = _text(node.status)
    if elements:
        state += f" {elements[WorkflowTaskStatus.COMPLETED]}/{elements.total()}"
    if node.error_code and node.status is WorkflowTaskStatus.FAILED:
        state += f": {_text(node.error_code)}"
    label = f"{_text(node.node_id)}<br/>{state}"
    return f"    n{node.task_index}{opening}{label}{closing}:::{_text(node.status)}"


def _text(text: str) -> str:
    """The text of a label: characters with a meaning in Mermaid are written as numbers."""
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", text)
