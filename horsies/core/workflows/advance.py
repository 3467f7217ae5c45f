"""Advances workflows; nothing in them moves in any other way (F-70): after tasks have ended, after child workflows have
ended, and whenever something may be READY. Finalizer, resume and recovery all use it; doing it twice has no further
effect.

A step is a transaction (`step.py`); further steps do the follow-up work: children are built and written, parents are
informed. If a process dies in between, reconciliation finds everything that is missing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import psycopg

from horsies.core.brokers.results import describe, is_about_content
from horsies.core.recovery.connections import Connections
from horsies.core.store import workflows
from horsies.core.store.tasks import Connection
from horsies.core.workflows import ends
from horsies.core.workflows.aftermath import Aftermath
from horsies.core.workflows.building import Builder
from horsies.core.workflows.settling import Key
from horsies.core.workflows.step import MOST, NOTHING, MustBeAlone, Step, transaction
from horsies.core.workflows.subworkflows import NoChild, create_child

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
    """The input of one transaction. `most` and `refused` are those of `Step`, after the database has refused what an
    earlier step wanted to write."""

    take: Take
    items: Sequence[Any]
    most: int | None = None
    refused: Mapping[Key, str] = NOTHING


@dataclass(slots=True)
class Todo:
    """What is left to do; each kind has a separate transaction."""

    tasks: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    lost: list[Key] = field(default_factory=list)
    flows: dict[str, int | None] = field(default_factory=dict)  # that may have something READY, as in `Aftermath`
    builds: list[Key] = field(default_factory=list)
    parts: deque[Part] = field(default_factory=deque)  # of what could not be done at once

    def __bool__(self) -> bool:
        return bool(self.parts or self.tasks or self.children or self.lost or self.flows or self.builds)

    def add(self, after: Aftermath) -> None:
        self.tasks += after.left
        self.builds += after.to_build
        self.children += [*after.ended, *after.left_children]
        self.flows.update(sorted(after.more.items()))


async def advance(pool: Connections, finished: Collection[str], builder: Builder | None) -> Advanced:
    """These tasks have ended: process that and everything that follows. Tasks without a workflow, and tasks that have
    not ended, are ignored."""
    return await go_on(pool, Todo(tasks=list(finished)), builder)


async def advance_parents(pool: Connections, ended: Collection[str], builder: Builder | None) -> Advanced:
    """These child workflows have ended."""
    return await go_on(pool, Todo(children=list(ended)), builder)


async def advance_lost(pool: Connections, nodes: Collection[Key], builder: Builder | None) -> Advanced:
    """The tasks or child workflows of these nodes no longer exist (R-34)."""
    return await go_on(pool, Todo(lost=list(nodes)), builder)


async def advance_workflows(pool: Connections, ids: Collection[str], builder: Builder | None) -> Advanced:
    """These workflows may have READY nodes, or nothing left to do (R-35, R-36)."""
    return await go_on(pool, Todo(flows=dict.fromkeys(ids)), builder)


async def go_on(pool: Connections, todo: Todo, builder: Builder | None) -> Advanced:
    """Continue until nothing is left to do."""
    total = Advanced()
    while todo:
        after = await next_step(pool, todo, builder)
        total += Advanced(after.nodes, after.workflows)
        todo.add(after)
    return total


async def next_step(pool: Connections, todo: Todo, builder: Builder | None) -> Aftermath:
    """One transaction, or the building of one child, and the follow-up work; the rest stays in `todo`. A worker queues
    the follow-up work and does it in its own order (`worker/advancer.py`)."""
    if todo.builds and not (todo.parts or todo.tasks or todo.children or todo.lost):
        key = todo.builds.pop(0)
        try:
            return await create_child(pool, key, builder)
        except NoChild as problem:
            todo.parts.append(Part(_take_unbuilt, [(key, problem)]))
            return Aftermath()
    part = _next_part(todo)
    step: Step | None = None
    try:
        async with transaction(pool) as conn:
            step = await part.take(conn, part)
            after = await step.finish()
    except MustBeAlone:
        todo.parts.extendleft(_halves(part)[::-1])
        return Aftermath()
    except psycopg.Error as problem:
        smaller = _smaller(part, step.enqueued, problem) if step is not None and is_about_content(problem) else []
        if not smaller:
            raise
        todo.parts.extendleft(smaller[::-1])
        return Aftermath()
    if part.most is not None:
        # Carefully, and ever more boldly as long as nothing is refused.
        after.more = dict.fromkeys(after.more, max(1, 4 * part.most) if 4 * part.most < MOST else None)
    return after


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
    return Part(_take_ready, [flow], todo.flows.pop(flow))


def _halves(part: Part) -> list[Part]:
    half = len(part.items) // 2
    return [part._replace(items=part.items[:half]), part._replace(items=part.items[half:])]


def _smaller(part: Part, enqueued: Sequence[Key], problem: psycopg.Error) -> list[Part]:
    """The database refuses what a step wanted to write: try fewer at a time, until the node that cannot be enqueued is
    found; that node fails (F-72). Return nothing if the refusal was not about enqueuing."""
    if len(part.items) > 1:
        return _halves(part)
    if len(enqueued) > 1:
        return [part._replace(most=len(enqueued) // 4 or 1)]
    if not enqueued:
        return []
    about = {"horsies": {"workflow_id": enqueued[0][0], "node": enqueued[0][1]}}
    log.error("the database refuses to enqueue a node: %s", describe(problem), extra=about)
    return [part._replace(most=0, refused={enqueued[0]: describe(problem)})]


# What has happened, under the locks of the workflows concerned


async def _take_tasks(conn: Connection, part: Part) -> Step:
    flows, ended = await workflows.lock_ended(conn, part.items)
    step = Step(conn, flows, part.most, part.refused)
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
    found = {
        (payload.workflow_id, payload.task_index): payload.ready_at
        for payload in await workflows.payloads(conn, [key for key, _ in part.items])
    }
    # One that has become READY anew meanwhile may have other inputs.
    failures = {
        key: ends.failure(why.code, f"No child workflow: {why}")
        for key, why in part.items
        if key[0] in running and found.get(key) == why.ready_at
    }
    await step.take_ends(failures, READY)
    return step


async def _locked(conn: Connection, ids: Collection[str], part: Part) -> Step:
    return Step(conn, await workflows.lock(conn, ids), part.most, part.refused)
