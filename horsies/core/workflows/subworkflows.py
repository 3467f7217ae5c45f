"""Child workflows: they are made when their node is ready (F-60 to F-65).

User code makes the plan of a child, and no lock may wait for that: it is requested between two transactions, and the
second one checks whether the node is still READY and its workflow still running.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import psycopg

from horsies.core.brokers.results import describe, is_about_content
from horsies.core.models.codes import OperationalErrorCode
from horsies.core.models.trace import trace_in
from horsies.core.recovery.connections import Connections
from horsies.core.store import workflows
from horsies.core.types.status import WorkflowStatus, WorkflowTaskStatus
from horsies.core.workflows.aftermath import Aftermath
from horsies.core.workflows.building import MAX_DEPTH, Builder, BuildFailed, BuildRequest, NotBuiltHere
from horsies.core.workflows.inputs import CTX, InputError, Payload, Source, context_of, injected, sources_of
from horsies.core.workflows.layout import Place, height, lay_out
from horsies.core.workflows.plan import WorkflowPlan
from horsies.core.workflows.settling import Key
from horsies.core.workflows.start import write
from horsies.core.workflows.step import Step, transaction


class NoChild(Exception):
    """The child of a node that has been READY since `ready_at` cannot be built or written: the node fails."""

    def __init__(self, message: str, code: OperationalErrorCode, ready_at: datetime | None) -> None:
        super().__init__(message)
        self.code, self.ready_at = code, ready_at


async def create_child(pool: Connections, key: Key, builder: Builder | None) -> Aftermath:
    """Build and write the child of a READY node. Raises `NoChild` if that is not possible."""
    asked = await _ask(pool, key)
    if asked is None:
        return Aftermath()
    payload, sources, depth = asked
    try:
        plan = await _build(_request(payload, sources, depth), builder)
        return await _write(pool, key, payload.ready_at, plan)
    except NotBuiltHere:
        return Aftermath()
    except BuildFailed as problem:
        raise NoChild(str(problem), problem.code, payload.ready_at) from problem
    except InputError as problem:
        raise NoChild(str(problem), OperationalErrorCode.WORKFLOW_ENQUEUE_FAILED, payload.ready_at) from problem
    except psycopg.Error as problem:
        if not is_about_content(problem):
            raise
        code = OperationalErrorCode.WORKFLOW_ENQUEUE_FAILED
        raise NoChild(describe(problem), code, payload.ready_at) from problem


async def _ask(pool: Connections, key: Key) -> tuple[Payload, dict[int, Source], int] | None:
    """The node, its inputs and the depth of its child; None if it must not be built any more."""
    async with pool.connection() as conn:
        flows = await workflows.lock(conn, [key[0]])
        found = await workflows.payloads(conn, [key])
        if not flows or not found or flows[0].status is not WorkflowStatus.RUNNING or found[0].status != "READY":
            return None
        sources = await workflows.sources(conn, [(key[0], index) for index in sources_of(found[0])])
    return found[0], {index: source for (_, index), source in sources.items()}, flows[0].depth + 1


def _request(payload: Payload, sources: Mapping[int, Source], depth: int) -> BuildRequest:
    given = injected(payload, sources)
    if payload.ctx_from is not None:
        given[CTX] = context_of(payload, sources)
    return BuildRequest(payload.sub_workflow_key or "", payload.kwargs, given, depth)


async def _build(request: BuildRequest, builder: Builder | None) -> WorkflowPlan:
    if builder is None:
        code = OperationalErrorCode.WORKFLOW_ENQUEUE_FAILED
        raise BuildFailed("there is no app to build the child workflow", code)
    plan = await builder.build(request)
    if request.depth + height(plan) > MAX_DEPTH:
        raise BuildFailed(f"child workflows are nested deeper than {MAX_DEPTH} levels")
    return plan


async def _write(pool: Connections, key: Key, ready_at: datetime | None, plan: WorkflowPlan) -> Aftermath:
    async with transaction(pool) as conn:
        locked = await workflows.lock(conn, [key[0]])
        flows = [flow for flow in locked if flow.status is WorkflowStatus.RUNNING]
        found = await workflows.payloads(conn, [key] if flows else [])
        if not found or found[0].status != "READY":
            return Aftermath()
        if found[0].ready_at != ready_at:
            return Aftermath(to_build=[key])  # it became READY anew meanwhile: its inputs may be others
        step, flow = Step(conn, flows), flows[0]
        await step.load([key])
        if flow.is_overdue:
            return await step.finish()
        place = Place(flow.id, flow.root_workflow_id or flow.id, None, flow.depth).below(key[1])
        layout = lay_out(plan, place, good_until=flow.good_until)
        layout.carry(trace_in(found[0].task_options))
        await write(conn, layout)
        node = step.settling.nodes[key]
        node.status, node.child_id = WorkflowTaskStatus.RUNNING, place.id
        return await step.finish()
