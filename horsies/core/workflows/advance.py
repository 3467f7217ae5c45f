"""Moves workflows on, the only way anything in them moves (F-70): after tasks have ended, after child workflows have,
and whenever something may be READY. Finalizer, resume and recovery all come here; doing it twice has no effect.

A step is a transaction (`step.py`); what it leaves to do, further steps do: children are built and written, parents
are told. Dying in between loses nothing that reconciliation does not find."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import psycopg

from horsies.core.brokers.results import describe, is_about_content
from horsies.core.recovery.connections import Connections
from horsies.core.store import workflows
from horsies.core.workflows import ends
from horsies.core.workflows.building import Builder
from horsies.core.workflows.settling import Key
from horsies.core.workflows.step import Aftermath, MustBeAlone, Step, transaction
from horsies.core.workflows.subworkflows import create_child

log = logging.getLogger("horsies.workflows")

AT_ONCE = 500
IN_FLIGHT = ("ENQUEUED", "RUNNING")


@dataclass(frozen=True, slots=True)
class Advanced:
    """How many nodes and workflows were moved."""

    nodes: int = 0
    workflows: int = 0

    def __add__(self, other: Advanced) -> Advanced:
        return Advanced(self.nodes + other.nodes, self.workflows + other.workflows)


@dataclass(slots=True)
class Todo:
    """What is left to do, each kind in a transaction of its own."""

    tasks: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    lost: list[Key] = field(default_factory=list)
    flows: dict[str, None] = field(default_factory=dict)  # that may have something READY
    builds: list[Key] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.tasks or self.children or self.lost or self.flows or self.builds)

    def add(self, after: Aftermath) -> None:
        self.builds += after.to_build
        self.children += after.ended
        self.flows.update(dict.fromkeys(sorted(after.more)))


async def advance(pool: Connections, finished: Collection[str], builder: Builder | None) -> Advanced:
    """These tasks have ended: take that in, and whatever follows. Tasks of no workflow, and those that have not
    ended, are passed over."""
    return await go_on(pool, Todo(tasks=list(finished)), builder)


async def advance_parents(pool: Connections, ended: Collection[str], builder: Builder | None) -> Advanced:
    """These child workflows have ended."""
    return await go_on(pool, Todo(children=list(ended)), builder)


async def advance_lost(pool: Connections, nodes: Collection[Key], builder: Builder | None) -> Advanced:
    """The tasks, or child workflows, of these nodes do not exist any more (R-34)."""
    return await go_on(pool, Todo(lost=list(nodes)), builder)


async def advance_workflows(pool: Connections, ids: Collection[str], builder: Builder | None) -> Advanced:
    """These workflows may have READY nodes, or nothing left to do (R-35, R-36)."""
    return await go_on(pool, Todo(flows=dict.fromkeys(ids)), builder)


async def go_on(pool: Connections, todo: Todo, builder: Builder | None) -> Advanced:
    """Until nothing is left to do."""
    total = Advanced()
    while todo:
        after = await next_step(pool, todo, builder)
        total += Advanced(after.nodes, after.workflows)
        todo.add(after)
    return total


async def next_step(pool: Connections, todo: Todo, builder: Builder | None) -> Aftermath:
    """One transaction, or the building of one child, and what it leaves to do. A worker files that and takes it up in
    its own order (`worker/advancer.py`)."""
    if todo.tasks:
        batch, todo.tasks = todo.tasks[:AT_ONCE], todo.tasks[AT_ONCE:]
        return await _take_tasks(pool, batch)
    if todo.children:
        batch, todo.children = todo.children[:AT_ONCE], todo.children[AT_ONCE:]
        return await _take_children(pool, batch)
    if todo.lost:
        batch_of_nodes, todo.lost = todo.lost[:AT_ONCE], todo.lost[AT_ONCE:]
        return await _take_lost(pool, batch_of_nodes)
    if todo.builds:
        return await create_child(pool, todo.builds.pop(0), builder)
    flow = next(iter(todo.flows))
    del todo.flows[flow]
    return await _take_ready(pool, flow)


async def _take_tasks(pool: Connections, tasks: Sequence[str], refusal: str | None = None) -> Aftermath:
    """One step for all; if the database refuses what it wants to write, ever smaller ones, and at last the node that
    cannot be enqueued fails (F-72)."""
    try:
        async with transaction(pool) as conn:
            flows, ended = await workflows.lock_ended(conn, tasks)
            step = Step(conn, flows, refusal)
            await step.take_tasks(ended)
            return await step.finish()
    except MustBeAlone:
        pass
    except psycopg.Error as problem:
        if refusal is not None or not is_about_content(problem):
            raise
        if len(tasks) == 1:
            log.error("the database refuses what follows a task: %s", describe(problem), extra=_about(tasks[0]))
            return await _take_tasks(pool, tasks, refusal=describe(problem))
    half = len(tasks) // 2
    return _both(await _take_tasks(pool, tasks[:half]), await _take_tasks(pool, tasks[half:]))


async def _take_children(pool: Connections, children: Sequence[str]) -> Aftermath:
    try:
        async with transaction(pool) as conn:
            step = Step(conn, await workflows.lock(conn, await workflows.parents(conn, children)))
            await step.take_children(children)
            return await step.finish()
    except MustBeAlone:
        half = len(children) // 2
    return _both(await _take_children(pool, children[:half]), await _take_children(pool, children[half:]))


async def _take_lost(pool: Connections, nodes: Sequence[Key]) -> Aftermath:
    try:
        async with transaction(pool) as conn:
            step = Step(conn, await workflows.lock(conn, {flow for flow, _ in nodes}))
            await step.load(nodes)
            # One that was retried meanwhile has a task again.
            lost = [key for key in nodes if key in step.settling.nodes and step.settling.nodes[key].row.task_id is None]
            await step.take_ends(dict.fromkeys(lost, ends.LOST), IN_FLIGHT)
            return await step.finish()
    except MustBeAlone:
        half = len(nodes) // 2
    return _both(await _take_lost(pool, nodes[:half]), await _take_lost(pool, nodes[half:]))


async def _take_ready(pool: Connections, flow: str, refusal: str | None = None) -> Aftermath:
    try:
        async with transaction(pool) as conn:
            step = Step(conn, await workflows.lock(conn, [flow]), refusal)
            await step.take_ready()
            return await step.finish()
    except psycopg.Error as problem:
        if refusal is not None or not is_about_content(problem):
            raise
        log.error("the database refuses to enqueue nodes: %s", describe(problem), extra={"horsies": {"workflow": flow}})
        return await _take_ready(pool, flow, describe(problem))


def _both(one: Aftermath, other: Aftermath) -> Aftermath:
    return Aftermath(
        [*one.to_build, *other.to_build],
        [*one.ended, *other.ended],
        one.more | other.more,
        one.nodes + other.nodes,
        one.workflows + other.workflows,
    )


def _about(task_id: str) -> dict[str, dict[str, str]]:
    return {"horsies": {"task_id": task_id}}
