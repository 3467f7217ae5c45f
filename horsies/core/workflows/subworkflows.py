"""Child workflows: made when their node is ready (F-60 to F-65).

The plan of a child is made by user code, which no lock may wait for: it is asked for between two transactions, and
the second one looks whether the node is still the READY one of a workflow that runs."""

from __future__ import annotations

import psycopg

from horsies.core.brokers.results import describe, is_about_content
from horsies.core.models.codes import OperationalErrorCode
from horsies.core.recovery.connections import Connections
from horsies.core.store import workflows
from horsies.core.types.status import WorkflowStatus, WorkflowTaskStatus
from horsies.core.workflows.building import MAX_DEPTH, Builder, BuildFailed, BuildRequest, NotBuiltHere
from horsies.core.workflows.inputs import CTX, InputError, context_of, injected, sources_of
from horsies.core.workflows.layout import Place, height, lay_out
from horsies.core.workflows.plan import WorkflowPlan
from horsies.core.workflows.settling import Key
from horsies.core.workflows.start import write
from horsies.core.workflows.step import Aftermath, Step, transaction


async def create_child(pool: Connections, key: Key, builder: Builder | None) -> Aftermath:
    """Build and write the child of a node that is READY. `BuildFailed`: it cannot be, and the node has failed."""
    try:
        request = await _request(pool, key)
        if request is None:
            return Aftermath()
        if builder is None:
            code = OperationalErrorCode.WORKFLOW_ENQUEUE_FAILED
            raise BuildFailed("there is no application to build the child workflow with", code)
        plan = await builder.build(request)
        if request.depth + height(plan) > MAX_DEPTH:
            raise BuildFailed(f"child workflows are nested deeper than {MAX_DEPTH} levels")
        return await _write(pool, key, plan)
    except NotBuiltHere:
        return Aftermath()
    except InputError as problem:
        raise BuildFailed(str(problem), OperationalErrorCode.WORKFLOW_ENQUEUE_FAILED) from problem
    except psycopg.Error as problem:
        if not is_about_content(problem):
            raise
        raise BuildFailed(describe(problem), OperationalErrorCode.WORKFLOW_ENQUEUE_FAILED) from problem


async def _request(pool: Connections, key: Key) -> BuildRequest | None:
    """What to build; None if the node is not to be built any more."""
    async with pool.connection() as conn:
        flows = await workflows.lock(conn, [key[0]])
        found = await workflows.payloads(conn, [key])
        if not flows or not found or flows[0].status is not WorkflowStatus.RUNNING or found[0].status != "READY":
            return None
        payload = found[0]
        found_sources = await workflows.sources(conn, [(key[0], index) for index in sources_of(payload)])
    sources = {index: source for (_, index), source in found_sources.items()}
    given = injected(payload, sources)
    if payload.ctx_from is not None:
        given[CTX] = context_of(payload, sources)
    return BuildRequest(payload.sub_workflow_key or "", payload.kwargs, given, flows[0].depth + 1)


async def _write(pool: Connections, key: Key, plan: WorkflowPlan) -> Aftermath:
    async with transaction(pool) as conn:
        locked = await workflows.lock(conn, [key[0]])
        flows = [flow for flow in locked if flow.status is WorkflowStatus.RUNNING]
        step = Step(conn, flows)
        if flows:
            await step.load([key])
        node = step.settling.nodes.get(key)
        if node is None or node.status is not WorkflowTaskStatus.READY:
            return Aftermath()
        flow = flows[0]
        if flow.is_overdue:
            return await step.finish()
        place = Place(flow.id, flow.root_workflow_id or flow.id, None, flow.depth).below(key[1])
        await write(conn, lay_out(plan, place, good_until=flow.good_until))
        node.status, node.child_id = WorkflowTaskStatus.RUNNING, place.id
        return await step.finish()
