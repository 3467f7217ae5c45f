"""Advances workflows; nothing in them moves in any other way (F-70): after tasks have ended, after child workflows have
ended, and whenever a node may be READY. The finalizer, resume and recovery all use it; doing it twice has no further
effect.

A step is a transaction (`step.py`); further steps do the follow-up work: children are built and written, parents are
told. If a process dies in between, reconciliation finds everything that is missing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeAlias

import psycopg

from horsies.core.db import Connection, Connections, describe, halves, is_about_content
from horsies.core.models import codes, sending
from horsies.core.models.workflow import registry
from horsies.core.models.workflow.plan import WorkflowPlan
from horsies.core.store import odd_rows, workflows
from horsies.core.store.workflows import Key, NewTask, Payload, Source
from horsies.core.types import WorkflowStatus, WorkflowTaskStatus
from horsies.core.workflows import finish, inputs
from horsies.core.workflows.layout import TreePosition, height, insert_layout, lay_out
from horsies.core.workflows.step import MOST, NOTHING, MustBeAlone, Step, StepResult, transaction

log = logging.getLogger("horsies.workflows")

AT_ONCE = 500
IN_FLIGHT = ("ENQUEUED", "RUNNING")
READY = ("READY",)

Take: TypeAlias = "Callable[[Connection, Batch], Awaitable[Step]]"
BuildLater: TypeAlias = Callable[[Key], None]


async def advance(pool: Connections, finished: Collection[str], builder: registry.Builder | None) -> Advanced:
    """These tasks have ended: process that and everything that follows. Tasks without a workflow, and tasks that have
    not ended, are ignored."""
    return await Worklist(tasks=list(finished)).work_off(pool, builder)


@dataclass(frozen=True, slots=True)
class Advanced:
    """How many nodes and workflows were moved."""

    nodes: int = 0
    workflows: int = 0

    def __add__(self, other: Advanced) -> Advanced:
        return Advanced(self.nodes + other.nodes, self.workflows + other.workflows)


class Companion(AbstractAsyncContextManager["Companion"], Protocol):
    """Goes with steps: a worker claims what they enqueue, in the same transaction (W-21a). It is entered before each
    transaction and left after it."""

    async def send(self, conn: Connection, new: Sequence[NewTask]) -> bool:
        """The last statement of a step that has written these tasks; False if nothing was sent."""


class NoCompanion(AbstractAsyncContextManager["NoCompanion"]):
    async def send(self, conn: Connection, new: Sequence[NewTask]) -> bool:
        return False

    async def __aexit__(self, *problem: object) -> None:
        pass


class Batch(NamedTuple):
    """The input of one transaction. `most` and `refused` are those of `Step`, after the database has refused what an
    earlier step wanted to write."""

    take: Take
    items: Sequence[Any]
    most: int | None = None
    refused: Mapping[Key, str] = NOTHING


@dataclass(slots=True)
class Worklist:
    """What is left to do for some workflows, each kind in a transaction of its own. `work_off` does all of it and what
    follows from it. A worker calls `step` instead: it files what a step leaves to do, and takes that up in its own
    order (`worker/advance.py`)."""

    tasks: list[str] = field(default_factory=list)  # tasks that have ended
    children: list[str] = field(default_factory=list)  # workflows that have ended; their parents must be told
    lost: list[Key] = field(default_factory=list)  # nodes whose task, or child workflow, does not exist any more
    # Workflows that may have READY nodes, or nothing left to do: as in `StepResult`.
    flows: dict[str, int | None] = field(default_factory=dict)
    builds: list[Key] = field(default_factory=list)  # nodes whose child workflow must be built
    batches: deque[Batch] = field(default_factory=deque)  # parts of a batch that could not be done at once
    build_later: BuildLater | None = None  # takes over the builds, because they are user code
    companion: Companion = field(default_factory=NoCompanion)

    def __bool__(self) -> bool:
        return bool(self.batches or self.tasks or self.children or self.lost or self.flows or self.builds)

    def add(self, result: StepResult) -> None:
        """Take over what a step has left to do."""
        self.tasks += result.tasks
        self.children += result.children
        self.flows.update(result.flows)
        if self.build_later is None:
            self.builds += result.builds
            return
        for key in result.builds:
            self.build_later(key)

    async def work_off(self, pool: Connections, builder: registry.Builder | None) -> Advanced:
        """Take steps until nothing is left to do."""
        total = Advanced()
        while self:
            result = await self.step(pool, builder)
            total += Advanced(result.nodes, result.workflows)
            self.add(result)
        return total

    async def step(self, pool: Connections, builder: registry.Builder | None) -> StepResult:
        """One transaction, or the building of one child, and what it leaves to do, beside what stays in the list."""
        if self.builds and not (self.batches or self.tasks or self.children or self.lost):
            return await self._build(pool, builder)
        batch = self._next_batch()
        step: Step | None = None
        is_sent = False
        try:
            async with self.companion as companion, transaction(pool) as conn:
                step = await batch.take(conn, batch)
                result = await step.finish()
                is_sent = bool(step.new_tasks)  # a refusal may be heard of while it is sent
                result.is_claimed = is_sent = is_sent and await companion.send(conn, step.new_tasks)
        except MustBeAlone:
            self.batches.extendleft(_halves(batch)[::-1])
            return StepResult()
        except psycopg.Error as problem:
            if step is None or not is_about_content(problem):
                raise
            if is_sent:
                self.companion = NoCompanion()  # perhaps a row that it has met is to blame
                self.batches.appendleft(batch)
                return StepResult()
            is_mended = len(batch.items) == 1 and await odd_rows.mend_workflows(pool, step.settling.flows)
            smaller = [batch] if is_mended else _smaller(batch, step.enqueued, problem)
            if not smaller:
                raise
            self.batches.extendleft(smaller[::-1])
            return StepResult()
        if batch.most is not None:
            # Go on with small steps, which grow as long as nothing is refused.
            result.flows = dict.fromkeys(result.flows, max(1, 4 * batch.most) if 4 * batch.most < MOST else None)
        return result

    async def _build(self, pool: Connections, builder: registry.Builder | None) -> StepResult:
        key = self.builds.pop(0)
        try:
            return await create_child(pool, key, builder)
        except NoChild as problem:
            self.batches.append(Batch(_take_unbuilt, [(key, problem)]))
            return StepResult()

    def _next_batch(self) -> Batch:
        if self.batches:
            return self.batches.popleft()
        if self.tasks:
            tasks, self.tasks = self.tasks[:AT_ONCE], self.tasks[AT_ONCE:]
            return Batch(_take_tasks, tasks)
        if self.children:
            children, self.children = self.children[:AT_ONCE], self.children[AT_ONCE:]
            return Batch(_take_children, children)
        if self.lost:
            lost, self.lost = self.lost[:AT_ONCE], self.lost[AT_ONCE:]
            return Batch(_take_lost, lost)
        flow = next(iter(self.flows))
        return Batch(_take_ready, [flow], self.flows.pop(flow))


def _halves(batch: Batch) -> list[Batch]:
    # `by_halves` does not fit: a half stays in the worklist, because the follow-up work of the first half comes before
    # the second half.
    return [batch._replace(items=half) for half in halves(batch.items)]


def _smaller(batch: Batch, enqueued: Sequence[Key], problem: psycopg.Error) -> list[Batch]:
    """The database refuses what a step wanted to write: try fewer at a time, until the node that cannot be enqueued is
    found; that node fails (F-72). Return nothing if the refusal was not about enqueuing."""
    if len(batch.items) > 1:
        return _halves(batch)
    if len(enqueued) > 1:
        return [batch._replace(most=len(enqueued) // 4 or 1)]
    if not enqueued:
        return []
    about = {"horsies": {"workflow_id": enqueued[0][0], "node": enqueued[0][1]}}
    log.error("the database refuses to enqueue a node: %s", describe(problem), extra=about)
    return [batch._replace(most=0, refused={enqueued[0]: describe(problem)})]


async def _take_tasks(conn: Connection, batch: Batch) -> Step:
    flows, ended, followers = await workflows.lock_ended(conn, batch.items)
    step = Step(conn, flows, batch.most, batch.refused)
    await step.take_tasks(ended, followers)
    return step


async def _take_children(conn: Connection, batch: Batch) -> Step:
    step = await _locked(conn, await workflows.parents(conn, batch.items), batch)
    await step.take_children(batch.items)
    return step


async def _take_lost(conn: Connection, batch: Batch) -> Step:
    step = await _locked(conn, {flow for flow, _ in batch.items}, batch)
    await step.load(batch.items)
    nodes = step.settling.nodes
    # A node that was retried in the meantime has a task, or a child, again.
    lost = [key for key in batch.items if key in nodes and nodes[key].row.is_lost]
    await step.take_ends(dict.fromkeys(lost, finish.LOST), IN_FLIGHT)
    return step


async def _take_ready(conn: Connection, batch: Batch) -> Step:
    step = await _locked(conn, batch.items, batch)
    await step.take_ready()
    return step


async def _take_unbuilt(conn: Connection, batch: Batch) -> Step:
    step = await _locked(conn, {key[0] for key, _ in batch.items}, batch)
    running = {flow for flow, state in step.settling.flows.items() if state.is_running}
    found = {
        (payload.workflow_id, payload.task_index): payload.ready_at
        for payload in await workflows.payloads(conn, [key for key, _ in batch.items])
    }
    # A node that has become READY again in the meantime may have other inputs.
    failures = {
        key: finish.failure(why.code, f"No child workflow: {why}")
        for key, why in batch.items
        if key[0] in running and found.get(key) == why.ready_at
    }
    await step.take_ends(failures, READY)
    return step


async def _locked(conn: Connection, ids: Collection[str], batch: Batch) -> Step:
    return Step(conn, await workflows.lock(conn, ids), batch.most, batch.refused)


class NoChild(Exception):
    """The child of a node that has been READY since `ready_at` cannot be built or written: the node fails."""

    def __init__(self, message: str, code: codes.OperationalErrorCode, ready_at: datetime | None) -> None:
        super().__init__(message)
        self.code, self.ready_at = code, ready_at


async def create_child(pool: Connections, key: Key, builder: registry.Builder | None) -> StepResult:
    """Build and write the child workflow of a node that is READY (F-60 to F-65). Raises `NoChild` if that is not
    possible. The plan of a child is made by user code, which no lock may wait for: it is asked for between two
    transactions, and the second one looks whether the node is still the READY one of a workflow that runs."""
    asked = await _node_to_build(pool, key)
    if asked is None:
        return StepResult()
    payload, sources, depth = asked
    try:
        plan = await _plan_of_child(_build_request(payload, sources, depth), builder)
        return await _write_child(pool, key, payload.ready_at, plan)
    except registry.NotBuiltHere:
        return StepResult()
    except registry.BuildFailed as problem:
        raise NoChild(str(problem), problem.code, payload.ready_at) from problem
    except registry.InputError as problem:
        raise NoChild(str(problem), codes.OperationalErrorCode.WORKFLOW_ENQUEUE_FAILED, payload.ready_at) from problem
    except psycopg.Error as problem:
        if not is_about_content(problem):
            raise
        if await odd_rows.mend_workflows(pool, [key[0]]):
            return StepResult(builds=[key])
        code = codes.OperationalErrorCode.WORKFLOW_ENQUEUE_FAILED
        raise NoChild(describe(problem), code, payload.ready_at) from problem


async def _node_to_build(pool: Connections, key: Key) -> tuple[Payload, dict[int, Source], int] | None:
    """The node, its inputs and the depth of its child; None if it must not be built any more."""
    async with pool.connection() as conn:
        flows = await workflows.lock(conn, [key[0]])
        found = await workflows.payloads(conn, [key])
        if not flows or not found or flows[0].status is not WorkflowStatus.RUNNING or found[0].status != "READY":
            return None
        sources = await workflows.sources(conn, [(key[0], index) for index in inputs.sources_of(found[0])])
    return found[0], {index: source for (_, index), source in sources.items()}, flows[0].depth + 1


def _build_request(payload: Payload, sources: Mapping[int, Source], depth: int) -> registry.BuildRequest:
    given = inputs.injected(payload, sources)
    if payload.ctx_from is not None:
        given[inputs.CTX] = inputs.context_of(payload, sources)
    return registry.BuildRequest(payload.sub_workflow_key or "", payload.kwargs, given, depth)


async def _plan_of_child(request: registry.BuildRequest, builder: registry.Builder | None) -> WorkflowPlan:
    if builder is None:
        code = codes.OperationalErrorCode.WORKFLOW_ENQUEUE_FAILED
        raise registry.BuildFailed("there is no app to build the child workflow", code)
    plan = await builder.build(request)
    if request.depth + height(plan) > registry.MAX_DEPTH:
        raise registry.BuildFailed(f"child workflows are nested deeper than {registry.MAX_DEPTH} levels")
    return plan


async def _write_child(pool: Connections, key: Key, ready_at: datetime | None, plan: WorkflowPlan) -> StepResult:
    async with transaction(pool) as conn:
        locked = await workflows.lock(conn, [key[0]])
        flows = [flow for flow in locked if flow.status is WorkflowStatus.RUNNING]
        found = await workflows.payloads(conn, [key] if flows else [])
        if not found or found[0].status != "READY":
            return StepResult()
        if found[0].ready_at != ready_at:
            return StepResult(builds=[key])  # it has become READY again in the meantime, perhaps with other inputs
        step, flow = Step(conn, flows), flows[0]
        await step.load([key])
        if flow.is_overdue:
            return await step.finish()
        place = TreePosition(flow.id, flow.root_workflow_id or flow.id, None, flow.depth).below(key[1])
        layout = lay_out(plan, place, good_until=flow.good_until)
        layout.carry(sending.trace_in(found[0].task_options))
        await insert_layout(conn, layout)
        step.result.enqueued += len(layout.tasks)
        node = step.settling.nodes[key]
        node.status, node.child_id = WorkflowTaskStatus.RUNNING, place.id
        return await step.finish()
