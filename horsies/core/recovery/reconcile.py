"""Reconciliation: finds nodes and workflows that are stuck because a process died between two transactions, and lets
the engine make the missing step in the usual way (R-30 to R-38).

A pass reads some of the nodes in flight, handles its findings in small steps, and continues from there at the next
call. Any number of workers may do this at the same time: the engine checks again under the lock of the workflow, and
the second worker finds nothing to do. The reaper runs `Reconciler` regularly; `recover_stuck_workflows` is the manual
form (R-37, R-97).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from horsies.core import errors
from horsies.core.db import Connections, as_broker_result, by_halves, describe, is_about_one, is_held_up, on_bridge
from horsies.core.models.base import A_YEAR_MS
from horsies.core.models.broker import BrokerErrorCode
from horsies.core.models.workflow import plan, registry
from horsies.core.recovery.apply import EndedNode
from horsies.core.store import recovery, workflows
from horsies.core.store.recovery import DEADLINES, LOOK_AT, NODES, STEP, WORKFLOWS, NodePosition, Stuck, What
from horsies.core.text import counted
from horsies.core.types import run_sync
from horsies.core.workflows import control, finish
from horsies.core.workflows.advance import Advanced, BuildLater, Worklist, advance

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

log = logging.getLogger("horsies.recovery")

CANCELLED = finish.CANCELLED.result or ""
REST, LONGEST_REST_S = 9.0, 30.0  # after a walk over very many nodes: so many times what it took
T = TypeVar("T")


async def advance_ended(pool: Connections, ended: Iterable[EndedNode]) -> None:
    """Advance the workflows of tasks that a manual recovery has ended, at once (R-57)."""
    tasks = [task_id for task_id, _ in ended]
    if tasks:
        await advance(pool, tasks, NobodyBuilds())


@as_broker_result(BrokerErrorCode.DB_OPERATION_FAILED)
@on_bridge
async def recover_stuck_workflows(broker: PostgresBroker, grace_ms: int = 10_000) -> int:
    """Let every stuck workflow continue: nodes whose task or child workflow ended at least `grace_ms` ago without an
    effect, nodes that were not enqueued, and workflows past their deadline or without an open node. Return how many
    nodes and workflows were moved. Child workflows are built if the broker has an app that knows them; otherwise they
    are left to the workers."""
    if isinstance(grace_ms, bool) or not isinstance(grace_ms, int) or not 0 <= grace_ms <= A_YEAR_MS:
        message = f"grace_ms must be a number of milliseconds from 0 to {A_YEAR_MS} (a year)"
        raise errors.ConfigurationError(message, code=errors.ErrorCode.CONFIG_INVALID_RECOVERY)
    return await Reconciler(broker.hub, control.builder_for(broker), timedelta(milliseconds=grace_ms)).run()


recover_stuck_workflows_sync = run_sync(recover_stuck_workflows)


class Reconciler:
    """`reconcile` and `end_workflows` are two passes of the reaper; each stops at the given time, and the walk over the
    nodes continues there at the next call. `builder` builds child workflows; or, because that is user code and may take
    long, `build_later` gets their nodes; or they are left to others."""

    def __init__(
        self,
        pool: Connections,
        builder: registry.Builder | None,
        grace: timedelta,
        *,
        build_later: BuildLater | None = None,
        look: int = LOOK_AT,
    ) -> None:
        self._pool = pool
        self._builder: registry.Builder = builder or NobodyBuilds()
        self._build_later = build_later
        self._grace = grace
        self._look = look
        self._place = NODES
        self._looks, self._walked_s, self._rests_until = 0, 0.0, -math.inf  # of this walk, and after the last one

    async def run(self) -> int:
        """Everything once, however long it takes; return how many nodes and workflows were repaired (R-37)."""
        self._place, self._rests_until = NODES, -math.inf
        return await self.reconcile(math.inf) + await self.end_workflows(math.inf)

    async def reconcile(self, until: float) -> int:
        """Repair nodes that nothing moves any more; return how many nodes and workflows were moved."""
        count = 0
        if self._place == NODES:
            if monotonic() < self._rests_until:
                return count
            self._looks, self._walked_s = 0, 0.0
            await self._hold_or_release(until)
        while True:
            found, place = await self._walk()
            count += await self._repair(found)
            if place is None:
                self._rest()
            if place is None or monotonic() >= until:
                return count

    async def _walk(self) -> tuple[list[Stuck], NodePosition | None]:
        """The next nodes in flight."""
        began = monotonic()
        async with self._pool.connection() as conn:
            found, place = await recovery.nodes(conn, self._grace, self._place, self._look)
        self._place = place or NODES  # set first, so that a failure does not hold up the nodes behind it
        self._looks += 1
        self._walked_s += monotonic() - began
        return found, place

    def _rest(self) -> None:
        """Looking at very many nodes must not cost more than it is good for (R-30). The last look finds nothing."""
        if self._looks > 2:
            self._rests_until = monotonic() + min(REST * self._walked_s, LONGEST_REST_S)

    async def _hold_or_release(self, until: float) -> None:
        """If somebody died after a pause or a resume, or an error has paused the workflow (R-39)."""
        async with self._pool.connection() as conn:
            found = await recovery.misheld(conn)
        for place in range(0, len(found), STEP):
            await _in_parts(found[place : place + STEP], self._turn, _workflow)
            if monotonic() >= until:
                return

    async def end_workflows(self, until: float) -> int:
        """End workflows past their deadline, then running ones without an open node; return how many were moved."""
        return await self.expire(until) + await self._end_finished(until)

    async def expire(self, until: float) -> int:
        """Only those past their deadline (R-38)."""
        count, place = 0, DEADLINES
        while True:
            async with self._pool.connection() as conn:
                found, after = await recovery.overdue_nodes(conn, place, STEP)
            done = await _in_parts(found, self._expire, _workflow)
            if done.workflows:
                log.info("%s past the deadline", counted(done.workflows, "workflow"))
            count += done.workflows
            if after is None or monotonic() >= until:
                return count
            place = after

    async def _repair(self, found: Sequence[Stuck]) -> int:
        count = 0
        for what, handle in (
            (What.STRANDED, self._cancel),
            (What.ENDED, self._advance),
            (What.CHILD, self._advance_parents),
            (What.LOST, self._give_up),
            (What.READY, self._enqueue),
        ):
            nodes = [node for node in found if node.what is what]
            for place in range(0, len(nodes), STEP):
                done = await _in_parts(nodes[place : place + STEP], handle, _name_of)
                _tell(what, done)
                count += done.nodes + done.workflows
        return count

    async def _end_finished(self, until: float) -> int:
        count, place = 0, WORKFLOWS
        while True:
            async with self._pool.connection() as conn:
                found, after = await recovery.over(conn, place, STEP)
            done = await _in_parts(found, self._settle, _workflow)
            if done.workflows:
                log.warning("%s ended: no node was open", counted(done.workflows, "workflow"))
            count += done.nodes + done.workflows
            if after is None or monotonic() >= until:
                return count
            place = after

    async def _cancel(self, nodes: Sequence[Stuck]) -> Advanced:
        """Cancel tasks that came back, by a retry or a recovery, when their workflow had just been cancelled (R-34)."""
        async with self._pool.connection() as conn:
            await workflows.cancel_tasks(conn, sorted(_links(nodes)), CANCELLED)
        return await self._advance(nodes)

    async def _advance(self, nodes: Sequence[Stuck]) -> Advanced:
        return await self._work_off(Worklist(tasks=_links(nodes)))

    async def _advance_parents(self, nodes: Sequence[Stuck]) -> Advanced:
        return await self._work_off(Worklist(children=_links(nodes)))

    async def _give_up(self, nodes: Sequence[Stuck]) -> Advanced:
        return await self._work_off(Worklist(lost=[(node.workflow_id, node.task_index) for node in nodes]))

    async def _enqueue(self, nodes: Sequence[Stuck]) -> Advanced:
        return await self._settle(list(dict.fromkeys(node.workflow_id for node in nodes)))

    async def _turn(self, ids: Sequence[str]) -> Advanced:
        await control.hold_or_release(self._pool, ids)
        return Advanced()

    async def _expire(self, ids: Sequence[str]) -> Advanced:
        return Advanced(0, await control.expire(self._pool, ids, self._builder))

    async def _settle(self, ids: Sequence[str]) -> Advanced:
        return await self._work_off(Worklist(flows=dict.fromkeys(ids)))

    async def _work_off(self, worklist: Worklist) -> Advanced:
        """Take the steps that are missing, and those that follow."""
        worklist.build_later = self._build_later
        return await worklist.work_off(self._pool, self._builder)


class NobodyBuilds:
    """A `Builder` for programs without an app: it leaves everything to those that have one (R-35)."""

    async def build(self, request: registry.BuildRequest) -> plan.WorkflowPlan:
        raise registry.NotBuiltHere(request.definition_key)


def _links(nodes: Sequence[Stuck]) -> list[str]:
    return [node.link for node in nodes if node.link is not None]


async def _in_parts(
    found: Sequence[T], handle: Callable[[Sequence[T]], Awaitable[Advanced]], name: Callable[[T], dict[str, Any]]
) -> Advanced:
    """All at once or, if one of them is faulty, in smaller and smaller parts, so that the others are not held up.
    Failures of the connection are passed on."""

    def give_up(one: T, problem: Exception) -> None:
        level = logging.INFO if is_held_up(problem) else logging.ERROR
        log.log(level, "a workflow is left for later: %s", describe(problem), extra={"horsies": name(one)})

    return sum(await by_halves(found, handle, is_refusal=is_about_one, give_up=give_up), Advanced())


def _tell(what: What, done: Advanced) -> None:
    if done.nodes or done.workflows:
        log.warning("%s moved on: %s", counted(done.nodes, "node"), _REASONS[what])


_REASONS = {
    What.STRANDED: "the task waited, and the workflow had ended",
    What.ENDED: "the task had ended, and nobody had advanced the workflow",
    What.CHILD: "the child workflow had ended, and nobody had told its parent",
    What.LOST: "the task or child workflow is gone",
    What.READY: "nobody had enqueued it",
}


def _name_of(node: Stuck) -> dict[str, Any]:
    return {"workflow_id": node.workflow_id, "node": node.task_index}


def _workflow(workflow_id: str) -> dict[str, Any]:
    return {"workflow_id": workflow_id}
