"""Moves workflows on, the only way anything in them moves (F-70): after tasks have ended, after child workflows have,
and whenever something may be READY. Finalizer, resume and recovery all come here; doing it twice has no effect.

A step is a transaction (`step.py`); what it leaves to do, further steps do: children are built and written, parents
are told. Dying in between loses nothing that reconciliation does not find."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import psycopg

from horsies.core.brokers.results import describe, is_about_content
from horsies.core.recovery.connections import Connections
from horsies.core.store import workflows
from horsies.core.store.tasks import Connection
from horsies.core.workflows import ends
from horsies.core.workflows.building import Builder, BuildFailed
from horsies.core.workflows.settling import Key
from horsies.core.workflows.step import MOST, Aftermath, MustBeAlone, Step, transaction
from horsies.core.workflows.subworkflows import create_child

log = logging.getLogger("horsies.workflows")

AT_ONCE = 500
IN_FLIGHT = ("ENQUEUED", "RUNNING")
READY = ("READY",)

Take: TypeAlias = "Callable[[Connection, Part], Awaitable[Step]]"


@dataclass(frozen=True, slots=True)
class Advanced:
    """How many nodes and workflows were moved."""

    nodes: int = 0
    workflows: int = 0

    def __add__(self, other: Advanced) -> Advanced:
        return Advanced(self.nodes + other.nodes, self.workflows + other.workflows)


class Part(NamedTuple):
    """What one transaction takes in. `most` and `refusal` are those of `Step`: what to do if the database has refused
    what an earlier one wanted to write."""

    take: Take
    items: Sequence[Any]
    most: int | None = None
    refusal: str | None = None


@dataclass(slots=True)
class Todo:
    """What is left to do, each kind in a transaction of its own."""

    tasks: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    lost: list[Key] = field(default_factory=list)
    flows: dict[str, None] = field(default_factory=dict)  # that may have something READY
    builds: list[Key] = field(default_factory=list)
    parts: deque[Part] = field(default_factory=deque)  # of what could not be done at once

    def __bool__(self) -> bool:
        return bool(self.parts or self.tasks or self.children or self.lost or self.flows or self.builds)

    def add(self, after: Aftermath) -> None:
        self.tasks += after.left
        self.builds += after.to_build
        self.children += [*after.ended, *after.left_children]
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
    """One transaction, or the building of one child, and what it leaves to do, beside what stays in `todo`. A worker
    files that and takes it up in its own order (`worker/advancer.py`)."""
    if todo.builds and not (todo.parts or todo.tasks or todo.children or todo.lost):
        key = todo.builds.pop(0)
        try:
            return await create_child(pool, key, builder)
        except BuildFailed as problem:
            todo.parts.append(Part(_take_unbuilt, [(key, problem)]))
            return Aftermath()
    part = _next_part(todo)
    try:
        async with transaction(pool) as conn:
            return await (await part.take(conn, part)).finish()
    except MustBeAlone:
        todo.parts.extend(_halves(part))
    except psycopg.Error as problem:
        if part.refusal is not None or not is_about_content(problem):
            raise
        todo.parts.extend(_smaller(part, problem))
    return Aftermath()


def _next_part(todo: Todo) -> Part:
    if todo.parts:
        return todo.parts.popleft()
    if todo.tasks:
        tasks, todo.tasks = todo.tasks[:AT_ONCE], todo.tasks[AT_ONCE:]
        return Part(_take_tasks, tasks)
    if todo.children:
        children, todo.children = todo.children[:AT_ONCE], todo.children[AT_ONCE:]
        return Part(_take_children, children)
    if todo.lost:
        lost, todo.lost = todo.lost[:AT_ONCE], todo.lost[AT_ONCE:]
        return Part(_take_lost, lost)
    flow = next(iter(todo.flows))
    del todo.flows[flow]
    return Part(_take_ready, [flow])


def _halves(part: Part) -> list[Part]:
    half = len(part.items) // 2
    return [part._replace(items=part.items[:half]), part._replace(items=part.items[half:])]


def _smaller(part: Part, problem: psycopg.Error) -> list[Part]:
    """The database refuses what follows: fewer at a time, and at last the one node that cannot be enqueued fails
    (F-72)."""
    if len(part.items) > 1:
        return _halves(part)
    if part.most != 1:
        return [part._replace(most=(part.most or MOST) // 4 or 1)]
    about = {"horsies": {"after": str(part.items[0])}}
    log.error("the database refuses to enqueue a node: %s", describe(problem), extra=about)
    return [part._replace(refusal=describe(problem))]


# What has happened, under the locks of the workflows concerned


async def _take_tasks(conn: Connection, part: Part) -> Step:
    flows, ended = await workflows.lock_ended(conn, part.items)
    step = Step(conn, flows, part.most, part.refusal)
    await step.take_tasks(ended)
    return step


async def _take_children(conn: Connection, part: Part) -> Step:
    step = await _locked(conn, await workflows.parents(conn, part.items), part)
    await step.take_children(part.items)
    return step


async def _take_lost(conn: Connection, part: Part) -> Step:
    step = await _locked(conn, {flow for flow, _ in part.items}, part)
    await step.load(part.items)
    nodes = step.settling.nodes
    # One that was retried meanwhile has a task, or a child, again.
    lost = [key for key in part.items if key in nodes and nodes[key].row.is_lost]
    await step.take_ends(dict.fromkeys(lost, ends.LOST), IN_FLIGHT)
    return step


async def _take_ready(conn: Connection, part: Part) -> Step:
    step = await _locked(conn, part.items, part)
    await step.take_ready()
    return step


async def _take_unbuilt(conn: Connection, part: Part) -> Step:
    step = await _locked(conn, {key[0] for key, _ in part.items}, part)
    running = {flow for flow, state in step.settling.flows.items() if state.is_running}
    failures = {key: ends.failure(why.code, f"No child workflow: {why}") for key, why in part.items}
    await step.take_ends({key: end for key, end in failures.items() if key[0] in running}, READY)
    return step


async def _locked(conn: Connection, ids: Collection[str], part: Part) -> Step:
    return Step(conn, await workflows.lock(conn, ids), part.most, part.refusal)
