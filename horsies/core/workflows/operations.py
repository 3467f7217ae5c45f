"""What can be asked of a workflow by its id. Each is an async function that runs on the broker's loop and raises what
goes wrong; `run` and `run_async` return the answer as a value to blocking and async callers (F-83, F-87).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import psycopg

from horsies.core.brokers.hub import can_exist
from horsies.core.brokers.results import SchemaInitFailed, describe, is_transient, reason
from horsies.core.brokers.waiter import WorkflowEnding
from horsies.core.errors import HorsiesError
from horsies.core.models.workflow.results import HandleErrorCode, HandleOperationError, HandleResult
from horsies.core.store import workflow_reads
from horsies.core.store.workflow_reads import NodeRow, NoSuchWorkflow, StoredNode, WorkflowEnded, WorkflowRow
from horsies.core.sync import BridgeError
from horsies.core.types.result import Err, Ok
from horsies.core.types.status import WorkflowStatus
from horsies.core.workflows import control, registry
from horsies.core.workflows.building import Builder, BuildRequest, NotBuiltHere
from horsies.core.workflows.local_builder import LocalBuilder
from horsies.core.workflows.plan import WorkflowPlan

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

T = TypeVar("T")


class End(NamedTuple):
    """How waiting for a workflow ended; it has nodes only if the workflow COMPLETED without an output node."""

    ending: WorkflowEnding
    nodes: list[StoredNode]


class Family(NamedTuple):
    """A workflow, the child workflows below it, and the nodes of all of them."""

    workflows: list[WorkflowRow]
    nodes: list[NodeRow]


def run(
    broker: PostgresBroker, workflow_id: str, operation: Callable[[PostgresBroker, str], Awaitable[T]]
) -> HandleResult[T]:
    """The answer for a blocking caller."""
    try:
        return Ok(broker.bridge.run(partial(_checked, broker, workflow_id, operation)))
    except Exception as problem:
        return Err(error(workflow_id, problem))


async def run_async(
    broker: PostgresBroker, workflow_id: str, operation: Callable[[PostgresBroker, str], Awaitable[T]]
) -> HandleResult[T]:
    """The answer for a caller on any loop."""
    try:
        return Ok(await broker.bridge.call(partial(_checked, broker, workflow_id, operation)))
    except Exception as problem:
        return Err(error(workflow_id, problem))


def error(workflow_id: str, problem: Exception) -> HandleOperationError:
    """The error value for an exception."""
    match problem:
        case NoSuchWorkflow():
            code, message = HandleErrorCode.WORKFLOW_NOT_FOUND, f"there is no workflow {workflow_id}"
            return HandleOperationError(code, message, False, workflow_id)
        case BridgeError():
            code = HandleErrorCode.LOOP_RUNNER_FAILED
        case psycopg.Error() | OSError() | HorsiesError() | SchemaInitFailed():
            code = HandleErrorCode.DB_OPERATION_FAILED
        case _:
            code = HandleErrorCode.INTERNAL_FAILED
    return HandleOperationError(code, describe(problem), is_transient(problem), workflow_id, reason(problem))


async def status(broker: PostgresBroker, workflow_id: str) -> WorkflowStatus:
    async with broker.hub.connection() as conn:
        return await workflow_reads.status(conn, workflow_id)


async def end(broker: PostgresBroker, workflow_id: str, *, timeout_ms: int | None) -> End:
    """Wait for the end, or a pause."""
    timeout = None if timeout_ms is None else max(0.0, timeout_ms / 1000)
    ending = await broker.hub.wait_for_workflow(workflow_id, timeout)
    nodes: list[StoredNode] = []
    if isinstance(ending, WorkflowEnded) and ending.status is WorkflowStatus.COMPLETED and ending.output is None:
        nodes = await results(broker, workflow_id)
    return End(ending, nodes)


async def node(broker: PostgresBroker, workflow_id: str, *, node_id: str) -> StoredNode | None:
    async with broker.hub.connection() as conn:
        return await workflow_reads.node(conn, workflow_id, node_id)


async def results(broker: PostgresBroker, workflow_id: str) -> list[StoredNode]:
    async with broker.hub.connection() as conn:
        return await workflow_reads.results(conn, workflow_id)


async def nodes(broker: PostgresBroker, workflow_id: str, *, with_results: bool) -> list[NodeRow]:
    async with broker.hub.connection() as conn:
        found = await workflow_reads.nodes(conn, [workflow_id], with_results=with_results)
    if not found:
        raise NoSuchWorkflow(workflow_id)
    return found


async def family(broker: PostgresBroker, workflow_id: str) -> Family:
    async with broker.hub.connection() as conn:
        workflows = await workflow_reads.family(conn, workflow_id)
        ids = [workflow.id for workflow in workflows]
        return Family(workflows, await workflow_reads.nodes(conn, ids, with_results=False))


async def cancel(broker: PostgresBroker, workflow_id: str) -> None:
    _found(workflow_id, await control.cancel(broker.hub, workflow_id, builder_for(broker)))


async def pause(broker: PostgresBroker, workflow_id: str) -> bool:
    return _found(workflow_id, await control.pause(broker.hub, workflow_id))


async def resume(broker: PostgresBroker, workflow_id: str) -> bool:
    return _found(workflow_id, await control.resume(broker.hub, workflow_id, builder_for(broker)))


async def retry(broker: PostgresBroker, workflow_id: str, *, node_ids: Sequence[str] | None) -> bool:
    """Run these FAILED nodes again, or all (F-94)."""
    return _found(workflow_id, await control.retry_nodes(broker.hub, workflow_id, node_ids, builder_for(broker)))


async def _checked(
    broker: PostgresBroker, workflow_id: str, operation: Callable[[PostgresBroker, str], Awaitable[T]]
) -> T:
    if not can_exist(workflow_id):
        raise NoSuchWorkflow(workflow_id)
    return await operation(broker, workflow_id)


def _found(workflow_id: str, answer: T | None) -> T:
    if answer is None:
        raise NoSuchWorkflow(workflow_id)
    return answer


class _KnownHere(LocalBuilder):
    """Builds the children whose definitions this program has imported; the others are left to the workers."""

    async def build(self, request: BuildRequest) -> WorkflowPlan:
        if registry.find(request.definition_key) is None:
            raise NotBuiltHere(request.definition_key)
        return await super().build(request)


def builder_for(broker: PostgresBroker) -> Builder | None:
    """The builder that calls `build_with` here; without an app nobody can (F-64)."""
    return None if broker.app is None else _KnownHere(broker.app)
