"""What a start returns: the id of the workflow, and methods to wait for it, inspect it and control it (F-83).

Each method has an `_async` twin. The database is queried on the broker's loop; results are decoded in the caller's
thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from horsies.core import tracing
from horsies.core.models.tasks import TaskError, TaskResult
from horsies.core.models.workflow.nodes import Node, NodeKey
from horsies.core.models.workflow.results import HandleResult, WorkflowTaskInfo
from horsies.core.store.workflow_reads import StoredNode
from horsies.core.types import Err, Ok, WorkflowStatus, run_sync
from horsies.core.workflows import control, read

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker
    from horsies.core.models.workflow.spec import WorkflowSpec

OutT = TypeVar("OutT")
NodeT = TypeVar("NodeT")
T = TypeVar("T")


class WorkflowHandle(Generic[OutT]):
    """A workflow that was started, with the type of its result."""

    __slots__ = ("_broker", "_codecs", "_spec", "workflow_id")

    def __init__(self, workflow_id: str, broker: PostgresBroker, spec: WorkflowSpec[OutT] | None = None) -> None:
        self.workflow_id = workflow_id
        self._broker = broker
        self._spec = spec
        self._codecs = read.NodeCodecs(broker.app, spec)

    async def status_async(self) -> HandleResult[WorkflowStatus]:
        """The state of the workflow."""
        return await self._ask(read.ask_status)

    status = run_sync(status_async)

    async def get_async(self, timeout_ms: int | None = None) -> TaskResult[OutT, TaskError]:
        """Wait for the end, at most `timeout_ms` milliseconds. The result is that of the output node or, without one,
        the results of all nodes by their ids. A pause also ends the wait. It never raises: a failure is an error
        result."""
        with tracing.getting("workflow", self.workflow_id):
            waited = await self._ask(partial(read.ask_end, timeout_ms=timeout_ms))
        match waited:
            case Ok(read.Waited(ending, nodes)) if nodes:
                every: Any = read.all_results(nodes, self._codecs.of)
                return TaskResult(ok=every)
            case Ok(read.Waited(ending, _)):
                return read.workflow_result(self.workflow_id, ending, self._codecs.of)
            case Err(error):
                return read.operation_failed(error)

    get = run_sync(get_async)

    async def result_for_async(self, node: Node[NodeT] | NodeKey[NodeT]) -> TaskResult[NodeT, TaskError]:
        """The current result of one node; RESULT_NOT_READY as long as there is none."""
        if (node_id := self._id_of(node)) is None:
            return read.no_such_node(self.workflow_id, None)
        looked = await self._ask(partial(read.ask_node, node_id=node_id))
        match looked:
            case Ok(StoredNode() as found):
                return read.node_result(found, self._codecs.of(found))
            case Ok(_):
                return read.no_such_node(self.workflow_id, node_id)
            case Err(error):
                return read.operation_failed(error)

    result_for = run_sync(result_for_async)

    async def results_async(self) -> HandleResult[dict[str, TaskResult[Any, TaskError]]]:
        """The results of the nodes that have ended, by their ids; a skipped node has UPSTREAM_SKIPPED."""
        return (await self._ask(read.ask_results)).map(lambda nodes: read.ended_results(nodes, self._codecs.of))

    results = run_sync(results_async)

    async def tasks_async(self) -> HandleResult[list[WorkflowTaskInfo]]:
        """The state of each node, in the order of their indexes; the elements of maps come last."""
        rows = await self._ask(partial(read.ask_nodes, with_results=True))
        return rows.map(lambda rows: [read.info(row, self._codecs.of) for row in rows])

    tasks = run_sync(tasks_async)

    async def diagram_async(self) -> HandleResult[str]:
        """The graph with the current state of each node, as Mermaid text."""
        return (await self._ask(partial(read.ask_nodes, with_results=False))).map(read.mermaid)

    diagram = run_sync(diagram_async)

    async def cancel_async(self) -> HandleResult[None]:
        """Cancel the workflow and its child workflows: nodes that have not started never will. An ended workflow does
        not change."""
        return (await self._ask(control.ask_cancel)).map(lambda _: None)

    cancel = run_sync(cancel_async)

    async def pause_async(self) -> HandleResult[bool]:
        """Start no more nodes, here and in the child workflows; True if it was running."""
        return await self._ask(control.ask_pause)

    pause = run_sync(pause_async)

    async def resume_async(self) -> HandleResult[bool]:
        """Continue; True if it was paused."""
        return await self._ask(control.ask_resume)

    resume = run_sync(resume_async)

    async def retry_node_async(self, node: Node[Any] | NodeKey[Any]) -> HandleResult[bool]:
        """Run a FAILED node again, as a new task, and then the nodes that were skipped because of it (F-94). False if
        nothing can be done: the node has not failed, or the workflow is COMPLETED, CANCELLED or past its deadline."""
        node_id = self._id_of(node)
        return await self._ask(partial(control.ask_retry, node_ids=[] if node_id is None else [node_id]))

    retry_node = run_sync(retry_node_async)

    async def retry_failed_async(self) -> HandleResult[bool]:
        """The same as `retry_node`, for every FAILED node."""
        return await self._ask(partial(control.ask_retry, node_ids=None))

    retry_failed = run_sync(retry_failed_async)

    async def _ask(self, operation: Callable[[PostgresBroker, str], Awaitable[T]]) -> HandleResult[T]:
        return await read.run_async(self._broker, self.workflow_id, operation)

    def _id_of(self, node: Node[Any] | NodeKey[Any]) -> str | None:
        """The id of a node in this workflow; a node that is in several workflows with different ids does not know it
        itself."""
        if isinstance(node, NodeKey) or self._spec is None:
            return node.node_id
        return next((own.node_id for own in self._spec.tasks if own.origin is node.origin), node.node_id)

    def __repr__(self) -> str:
        return f"WorkflowHandle(workflow_id={self.workflow_id!r})"
