"""Pause, resume, cancel, retry and the deadline of workflows (F-50 to F-54, F-76, F-94, F-96).

Each is one transaction over the workflow and, if they are concerned, its children, locked from the top down (D-63).
`advance.py` does what follows after the commit. A handle uses the `ask_…` functions through `read.py`;
`pause_workflow` and `resume_workflow` are for callers that have only a broker and an id.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from horsies.core.db import AWAY, Connection, Connections, describe, mending
from horsies.core.models.codes import OutcomeCode
from horsies.core.models.workflow import HandleResult, plan, registry
from horsies.core.store import held, odd_rows, workflow_reads, workflows
from horsies.core.types import WorkflowStatus, WorkflowTaskStatus, run_sync
from horsies.core.workflows import advance, finish, read
from horsies.core.workflows.step import UNFINISHED, Step, StepResult, transaction

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

T = TypeVar("T")
W = TypeVar("W", str, Collection[str])

log = logging.getLogger("horsies.workflows")

P = ParamSpec("P")
AT_ONCE = 2_000  # tasks that leave or enter the line of the claims in one statement
FLOWS_AT_ONCE = 500  # workflows whose tasks do
LATER = 0  # nodes are enqueued by this step: the next steps do it, and can handle a refusal


def _mending(
    act: Callable[Concatenate[Connections, W, P], Awaitable[T]],
) -> Callable[Concatenate[Connections, W, P], Coroutine[Any, Any, T]]:
    """If the database refuses it because a row of these workflows is outside the limits (D-14), mend and try again.
    Nothing has been written then: what follows the commit is not refused, but left to the workers."""

    @wraps(act)
    async def with_mending(pool: Connections, which: W, /, *args: P.args, **kwargs: P.kwargs) -> T:
        ids = [which] if isinstance(which, str) else which
        return await mending(partial(act, pool, which, *args, **kwargs), partial(odd_rows.mend_workflows, pool, ids))

    return with_mending


@_mending
async def pause(pool: Connections, workflow_id: str) -> bool | None:
    """RUNNING → PAUSED, with all running workflows below it. None: there is no such workflow; False: it was not
    running."""
    async with transaction(pool) as conn:
        tree = await _tree(conn, workflow_id, UNFINISHED)
        if tree is None or tree[0].status is not WorkflowStatus.RUNNING:
            return None if tree is None else False
        step = Step(conn, tree, is_tree=True)
        for state in step.settling.flows.values():
            if state.is_running:
                state.status = WorkflowStatus.PAUSED
        after = await step.finish()
    await _follow(pool, StepResult(children=after.children), None, [flow.id for flow in tree])
    return True


@_mending
async def resume(pool: Connections, workflow_id: str, builder: registry.Builder | None) -> bool | None:
    """PAUSED → RUNNING, with all paused workflows below it; then waiting work continues, or the workflow ends."""
    async with transaction(pool) as conn:
        tree = await _tree(conn, workflow_id, UNFINISHED)
        if tree is None or tree[0].status is not WorkflowStatus.PAUSED:
            return None if tree is None else False
        after = await _resume(conn, tree)
    await _follow(pool, after, builder, [flow.id for flow in tree])
    return True


@_mending
async def cancel(pool: Connections, workflow_id: str, builder: registry.Builder | None) -> bool | None:
    """→ CANCELLED, with all unfinished workflows below it: nothing more starts, and running tasks may finish (F-53)."""
    async with transaction(pool) as conn:
        tree = await _tree(conn, workflow_id, UNFINISHED)
        if tree is None or tree[0].status.is_terminal:
            return None if tree is None else False
        step = Step(conn, tree)
        end = finish.ended_by(OutcomeCode.WORKFLOW_CANCELLED, "The workflow was cancelled.")
        for state in step.settling.flows.values():
            state.status, state.result = end.status, end.result
            state.error, state.error_code = end.error, end.error_code
        await step.stop_waiting([flow.id for flow in tree])
        after = await step.finish()
    # From the bottom up, because the summary of a child counts the ends of its own children.
    for child in after.children[::-1]:
        await _follow(pool, StepResult(children=[child]), builder)
    after.children = []
    await _follow(pool, after, builder)
    return True


@_mending
async def expire(pool: Connections, ids: Collection[str], builder: registry.Builder | None) -> int:
    """End everything that has not started in those of these workflows that are past their deadline (F-96); return how
    many."""
    async with transaction(pool) as conn:
        flows = [flow for flow in await workflows.lock(conn, ids) if flow.is_overdue and not flow.status.is_terminal]
        step = Step(conn, flows)
        after = await step.finish()
    await _follow(pool, after, builder)
    return len(flows)


@_mending
async def retry_nodes(
    pool: Connections, workflow_id: str, node_ids: Collection[str] | None, builder: registry.Builder | None
) -> bool | None:
    """Run FAILED nodes again, all of them or the named ones (F-94). False, without any change, if that is not
    possible."""
    async with transaction(pool) as conn:
        # The parent is locked first: it must not take the end of a child that goes on (D-63).
        locked = await workflows.lock(conn, [workflow_id, *await workflows.parents(conn, [workflow_id])])
        flows = [flow for flow in locked if flow.id == workflow_id]
        if not flows:
            return None
        if any(flow.status.is_terminal for flow in locked if flow.id != workflow_id):
            return False  # its parent is cancelled, and has not taken the child's end yet
        if not await _may_retry(conn, flows[0]):
            return False
        # The retry resumes a paused workflow and its children.
        tree = flows if flows[0].status is not WorkflowStatus.PAUSED else await _below(conn, flows, UNFINISHED)
        step = Step(conn, tree, LATER, is_tree=len(tree) > 1)
        if not await _open_again(step, flows[0], node_ids):
            return False
        state = step.settling.flows[workflow_id]
        was, state.status, state.opened = state.status, WorkflowStatus.RUNNING, True
        for key in list(step.settling.nodes):
            step.settling.evaluate(key)
        await step.settle()
        after = await _resume(conn, tree, step) if was is WorkflowStatus.PAUSED else await step.finish()
        after.flows.setdefault(workflow_id)  # if nothing can run, the next step ends the workflow
    await _follow(pool, after, builder, [flow.id for flow in tree] if was is WorkflowStatus.PAUSED else ())
    return True


async def pause_workflow(broker: PostgresBroker, workflow_id: str) -> HandleResult[bool]:
    """Start no more nodes, here and in the child workflows; True if it was running."""
    return await read.run_async(broker, workflow_id, ask_pause)


async def resume_workflow(broker: PostgresBroker, workflow_id: str) -> HandleResult[bool]:
    """Continue; True if it was paused."""
    return await read.run_async(broker, workflow_id, ask_resume)


async def cancel_workflow(broker: PostgresBroker, workflow_id: str) -> HandleResult[bool]:
    """Cancel it and its child workflows; True if it had not ended."""
    return await read.run_async(broker, workflow_id, ask_cancel)


async def retry_workflow(
    broker: PostgresBroker, workflow_id: str, node_ids: Sequence[str] | None = None
) -> HandleResult[bool]:
    """Run its FAILED nodes again, all of them or the named ones; True if that was possible."""
    return await read.run_async(broker, workflow_id, partial(ask_retry, node_ids=node_ids))


pause_workflow_sync = run_sync(pause_workflow)
resume_workflow_sync = run_sync(resume_workflow)


async def ask_cancel(broker: PostgresBroker, workflow_id: str) -> bool:
    return _found(workflow_id, await cancel(broker.hub, workflow_id, builder_for(broker)))


async def ask_pause(broker: PostgresBroker, workflow_id: str) -> bool:
    return _found(workflow_id, await pause(broker.hub, workflow_id))


async def ask_resume(broker: PostgresBroker, workflow_id: str) -> bool:
    return _found(workflow_id, await resume(broker.hub, workflow_id, builder_for(broker)))


async def ask_retry(broker: PostgresBroker, workflow_id: str, *, node_ids: Sequence[str] | None) -> bool:
    """Run these FAILED nodes again, or all (F-94)."""
    return _found(workflow_id, await retry_nodes(broker.hub, workflow_id, node_ids, builder_for(broker)))


def builder_for(broker: PostgresBroker) -> registry.Builder | None:
    """The builder that calls `build_with` here; without an app nobody can (F-64)."""
    return None if broker.app is None else _KnownHere(broker.app)


class _KnownHere(registry.LocalBuilder):
    """Builds the children whose definitions this program has imported; the others are left to the workers."""

    async def build(self, request: registry.BuildRequest) -> plan.WorkflowPlan:
        if registry.find(request.definition_key) is None:
            raise registry.NotBuiltHere(request.definition_key)
        return await super().build(request)


def _found(workflow_id: str, answer: T | None) -> T:
    if answer is None:
        raise workflow_reads.NoSuchWorkflow(workflow_id)
    return answer


async def _may_retry(conn: Connection, flow: workflows.Flow) -> bool:
    states = (WorkflowStatus.RUNNING, WorkflowStatus.PAUSED, WorkflowStatus.FAILED)
    if flow.status not in states or flow.is_overdue or not await workflows.is_whole(conn, flow.id):
        return False
    if flow.parent_workflow_id is None:
        return True
    # A child whose parent has taken its end, or has another child now, is not retried itself.
    node = await workflows.node_of_child(conn, flow.id)
    return node is not None and not node.is_terminal


async def _open_again(step: Step, flow: workflows.Flow, node_ids: Collection[str] | None) -> bool:
    """Reopen the failed nodes and the nodes that were skipped because of them (F-94); False if a named node has not
    failed."""
    found = await workflows.failed_nodes(step.conn, flow.id, node_ids)
    failed = [node for node in found if await _can_run_again(step.conn, node)]
    if not failed or (node_ids is not None and len(failed) < len(set(node_ids))):
        return False
    step.settling.add([*failed, *await workflows.skipped_below(step.conn, [node.key for node in failed])])
    again = list(step.settling.nodes.values())
    waited_for = {(flow.id, index) for node in again for index in node.row.dependents}
    for node in again:
        if node.status is WorkflowTaskStatus.SKIPPED:
            step.settling.open_again(node.row.key, WorkflowTaskStatus.PENDING)
        else:
            await _run_again(step, node.row.key, waits=node.row.key in waited_for)
    await step.settle()
    return True


async def _can_run_again(conn: Connection, node: workflows.FlowNode) -> bool:
    """Not a map whose elements have all succeeded but were too few: running them again would not add more."""
    return not node.has_elements or bool(await workflows.unsuccessful_elements(conn, node.key))


async def _run_again(step: Step, key: workflows.Key, *, waits: bool) -> None:
    """A failed node becomes READY, or PENDING if it waits for another node that runs again. A map with elements becomes
    RUNNING, and its unsuccessful elements become READY."""
    node = step.settling.nodes[key]
    elements = await workflows.unsuccessful_elements(step.conn, key) if node.row.node_type == "MAP" else []
    if not elements:
        step.settling.open_again(key, WorkflowTaskStatus.PENDING if waits else WorkflowTaskStatus.READY)
        return
    step.settling.open_again(key, WorkflowTaskStatus.RUNNING)
    step.settling.add(elements)
    for element in elements:
        step.settling.open_again(element.key, WorkflowTaskStatus.READY)


async def _resume(conn: Connection, tree: list[workflows.Flow], step: Step | None = None) -> StepResult:
    step = step or Step(conn, tree, LATER, is_tree=True)
    for state in step.settling.flows.values():
        if state.status is WorkflowStatus.PAUSED:
            state.status = WorkflowStatus.RUNNING
    waiting = await workflows.open_nodes(conn, [flow.id for flow in tree], ("PENDING",))
    step.settling.add(waiting)
    for node in waiting:
        step.settling.evaluate(node.key)
    await step.settle()
    after = await step.finish()
    await held.ring(conn, [flow.id for flow in tree])
    # Nodes that were READY at the pause are enqueued by the next steps: from the top, because the end of a child may
    # pause those above it again.
    after.flows = {flow.id: after.flows.get(flow.id) for flow in tree} | after.flows
    return after


async def _tree(conn: Connection, workflow_id: str, states: Collection[str]) -> list[workflows.Flow] | None:
    """The workflow and, level by level, those below it in one of the states."""
    top = await workflows.lock(conn, [workflow_id])
    return await _below(conn, top, states) if top else None


async def _below(conn: Connection, top: list[workflows.Flow], states: Collection[str]) -> list[workflows.Flow]:
    found, level = list(top), list(top)
    while level:
        level = await workflows.lock_children(conn, [flow.id for flow in level], states)
        found += level
    return found


async def hold_or_release(pool: Connections, ids: Collection[str]) -> None:
    """The waiting tasks of those of these workflows that are paused leave the line of the claims, the others return to
    it (F-50, F-52). In parts, each under the locks of the workflows: whoever changed their state last goes through all
    of them after that, and nobody acts against it."""
    every = list(ids)
    for first in range(0, len(every), FLOWS_AT_ONCE):
        await _hold_or_release_some(pool, every[first : first + FLOWS_AT_ONCE])


async def _hold_or_release_some(pool: Connections, ids: Collection[str]) -> None:
    node, task = held.FIRST_NODE, held.FIRST_TASK
    while True:
        async with transaction(pool) as conn:
            paused = {flow.id for flow in await workflows.lock(conn, ids) if flow.status is WorkflowStatus.PAUSED}
            next_node = await held.hold(conn, paused, node, AT_ONCE)
            next_task = await held.release(conn, [i for i in ids if i not in paused], task, AT_ONCE)
        if next_node is None and next_task is None:
            return
        node, task = next_node or node, next_task or task


async def _follow(
    pool: Connections, after: StepResult, builder: registry.Builder | None, turned: Collection[str] = ()
) -> None:
    """The request itself is done; if the database goes away now, reconciliation does the follow-up work. `turned`:
    workflows that were paused or resumed."""
    worklist = advance.Worklist()
    worklist.add(after)
    for follow in (partial(hold_or_release, pool, turned), partial(worklist.work_off, pool, builder)):
        try:
            await follow()
        except AWAY as problem:
            log.warning("the next steps are left to the workers: %s", describe(problem))
