"""Advances workflows after tasks have ended (L-32), in a second transaction after the one that ended the task.

Everything that has collected is advanced together; follow-up work (a parent to inform, a child to build) waits in the
same line. While the database is away, everything waits. A workflow whose row is locked elsewhere, or that cannot be
advanced for another reason, waits separately, and the others continue. Children are built outside this line, because
user code may take long. What is lost when the worker dies here is found by reconciliation (R-30 to R-36).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from time import monotonic
from typing import Literal, NamedTuple, TypeAlias

import psycopg

from horsies.core import events, logs
from horsies.core.db import AWAY, Backoff, Connection, Connections, by_halves, describe, is_about_one
from horsies.core.models.recovery import WorkerResilienceConfig
from horsies.core.models.workflow.registry import Builder
from horsies.core.store import tasks
from horsies.core.store.workers import mark_advancing
from horsies.core.store.workflows import Key, NewTask
from horsies.core.tasks.moves import Claim
from horsies.core.worker.claim import Claimer
from horsies.core.worker.start import Offer
from horsies.core.workflows.advance import AT_ONCE, Companion, NoCompanion, Worklist
from horsies.core.workflows.step import StepResult

log = logging.getLogger("horsies.worker")

# What is to be done for a workflow: take in the ends of its tasks, tell its parent of its end, enqueue what is READY.
Kind: TypeAlias = Literal["tasks", "children", "flows"]


class Unit(NamedTuple):
    """The work for one workflow; units of one kind share a transaction."""

    kind: Kind
    workflow_id: str


Tasks: TypeAlias = dict[str, float]  # that have ended, in that order, and when this was heard of

Waiting: TypeAlias = dict[Unit, Tasks]

NOTHING: Mapping[str, float] = {}
MARKED = 1_000  # workflows with more to do that a mark names
UNHEARD_S = 5.0  # a task may have ended so long before this is heard of


class Lag(NamedTuple):
    """For whom, and how often, a mark says how far the line is behind."""

    worker_id: str
    every_s: float


class Advancer:
    """`put` adds an end; `step` is one transaction, `build` builds one child. `on_enqueued` is called when there are
    new tasks, unless the `companion` of a step has claimed them with it."""

    def __init__(
        self,
        pool: Connections,
        builder: Builder,
        config: WorkerResilienceConfig,
        on_enqueued: Callable[[], None],
        companion: Callable[[], Companion] = NoCompanion,
        lag: Lag | None = None,
    ) -> None:
        self._pool = pool
        self._builder = builder
        self._on_enqueued = on_enqueued
        self._companion = companion
        self._lag = lag
        self._mark_at = 0.0
        self._pending_since: float | None = None  # when the line was last empty
        self._backoff = Backoff(config.db_retry_initial_ms / 1000, config.db_retry_max_ms / 1000)
        self._waiting: Waiting = {}
        self._aside: Waiting = {}
        self._builds: dict[Key, None] = {}
        self._refusals: dict[Unit | Key, int] = {}
        self._careful: dict[str, int | None] = {}  # workflows in which something was refused: so many nodes in a step
        self._work, self._building = asyncio.Event(), asyncio.Event()
        self._busy = 0
        self._most = AT_ONCE  # workflows in one transaction

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do, except for work that cannot be done now."""
        return not (self._waiting or self._builds or self._busy)

    def put(self, task_id: str, workflow_id: str) -> None:
        """This task may have ended; a task that has not is ignored."""
        self._add(Unit("tasks", workflow_id), {task_id: monotonic()})

    def put_all(self, ended: Iterable[tuple[str, str]]) -> None:
        for task_id, workflow_id in ended:
            self.put(task_id, workflow_id)

    def build_later(self, key: Key) -> None:
        """The child workflow of this READY node must be built."""
        self._builds[key] = None
        self._building.set()

    async def step(self) -> None:
        """Advance what has waited longest, with everything of its kind."""
        await self._work.wait()
        batch = self._next_batch()
        if not batch:
            self._work.clear()
            self._pending_since = None
            return
        self._busy += 1
        try:
            await self._advance(batch)
            self._most = AT_ONCE
            await self._mark()
        except AWAY:
            # Perhaps something in the batch is too much for the database, and must not hold up the others.
            self._most = max(1, len(batch) // 2)
            raise
        finally:
            self._busy -= 1
            for unit, task_ids in batch.items():  # the database is away, and it is unknown what was written
                self._add(unit, task_ids)
                if unit.kind == "tasks":
                    self._add(Unit("children", unit.workflow_id))
                    self._add(Unit("flows", unit.workflow_id))

    async def build(self) -> None:
        """One child workflow."""
        await self._building.wait()
        if not self._builds:
            self._building.clear()
            return
        key = next(iter(self._builds))
        self._busy += 1
        try:
            await self._take_steps(Worklist(builds=[key]))
            self._refusals.pop(key, None)
        except Exception as problem:
            if not is_about_one(problem):
                raise
            self._note_refusal(key, key[0], problem)  # as when there is no helper to build it
            asyncio.get_running_loop().call_later(self._pause(key), self.build_later, key)
        finally:
            self._busy -= 1
        del self._builds[key]

    # Line

    def _add(self, unit: Unit, ended: Mapping[str, float] = NOTHING) -> None:
        aside = self._aside.get(unit)
        if aside is not None:
            aside.update(ended)
            return
        self._waiting.setdefault(unit, {}).update(ended)
        self._pending_since = self._pending_since or monotonic()
        self._work.set()

    async def _mark(self) -> None:
        """While the line does not become empty, say now and then how far it is, so that nobody takes what waits in it
        for lost (R-31). This follows a step that has succeeded: a worker that is stuck says nothing."""
        now = monotonic()
        if self._lag is None or self._pending_since is None or not self._waiting:
            return
        if now < max(self._mark_at, self._pending_since + self._lag.every_s):
            return
        oldest = min((at for ended in self._waiting.values() for at in ended.values()), default=now)
        flows = list(islice((unit.workflow_id for unit in self._waiting if unit.kind != "tasks"), MARKED))
        self._mark_at = now + self._lag.every_s
        with contextlib.suppress(*AWAY):  # nobody depends on it; if the database is away, the next step notices
            async with self._pool.connection() as conn:
                await mark_advancing(conn, self._lag.worker_id, now - oldest + UNHEARD_S, flows)

    def _next_batch(self) -> Waiting:
        batch: Waiting = {}
        size = 0
        kind = next(iter(self._waiting)).kind if self._waiting else None
        most = 1 if kind == "flows" else self._most
        for unit in [unit for unit in self._waiting if unit.kind == kind][:most]:
            task_ids = self._waiting.pop(unit)
            batch[unit] = dict(islice(task_ids.items(), AT_ONCE - size))
            size += len(batch[unit])
            if len(batch[unit]) < len(task_ids):
                self._waiting[unit] = dict(islice(task_ids.items(), len(batch[unit]), None))
            if size >= AT_ONCE:
                break
        return batch

    def _file(self, result: StepResult) -> None:
        """Add the follow-up work of a step to the line."""
        self.put_all(result.tasks.items())
        self._careful.update(result.flows)
        left: tuple[tuple[Kind, Iterable[str]], ...] = (
            ("children", result.children),
            ("flows", sorted(result.flows)),
        )
        for kind, workflow_ids in left:
            for workflow_id in workflow_ids:
                self._add(Unit(kind, workflow_id))
        for key in result.builds:
            self.build_later(key)
        if result.enqueued and not result.is_claimed:
            self._on_enqueued()

    # One transaction

    async def _advance(self, batch: Waiting) -> None:
        """The units of the batch; those that are done, or set aside, are taken out of it. Halved where one of them
        keeps back the others."""

        async def advance(part: Sequence[Unit]) -> None:
            await self._take_steps(self._worklist(batch, part))
            for unit in part:
                del batch[unit]
                self._refusals.pop(unit, None)

        def give_up(unit: Unit, problem: Exception) -> None:
            self._set_aside(unit, batch.pop(unit), problem)

        await by_halves(list(batch), advance, is_refusal=is_about_one, give_up=give_up)

    async def _take_steps(self, worklist: Worklist) -> None:
        """One transaction, usually; more if the database does not accept everything at once. What is written is
        recorded at once, whatever happens to the rest."""
        worklist.companion = self._companion()
        while worklist:
            self._file(await worklist.step(self._pool, self._builder))

    def _worklist(self, batch: Waiting, part: Sequence[Unit]) -> Worklist:
        ids = [unit.workflow_id for unit in part]
        match part[0].kind:
            case "tasks":
                return Worklist(tasks=[task_id for unit in part for task_id in batch[unit]])
            case "children":
                return Worklist(children=ids)
            case "flows":
                return Worklist(flows={flow: self._careful.pop(flow, None) for flow in ids})

    def _set_aside(self, unit: Unit, task_ids: Tasks, problem: Exception) -> None:
        self._note_refusal(unit, unit.workflow_id, problem)
        self._aside[unit] = task_ids
        asyncio.get_running_loop().call_later(self._pause(unit), self._bring_back, unit)

    def _bring_back(self, unit: Unit) -> None:
        self._add(unit, self._aside.pop(unit))

    def _pause(self, what: Unit | Key) -> float:
        return self._backoff.delay(self._refusals[what])

    def _note_refusal(self, what: Unit | Key, workflow_id: str, problem: Exception) -> None:
        count = self._refusals[what] = self._refusals.get(what, 0) + 1
        is_known = isinstance(problem, psycopg.errors.LockNotAvailable)
        if logs.is_worth_a_line(count):
            log.log(
                logging.WARNING if is_known else logging.ERROR,
                "a workflow cannot be advanced now and will be retried: %s",
                describe(problem),
                exc_info=None if isinstance(problem, psycopg.Error) else problem,
                extra={"horsies": {"workflow_id": workflow_id}},
            )


class Along:
    """The companion of one step (W-21a): an ordinary pass in its transaction, so that the next node of a workflow is
    claimed by the commit that enqueues it, without a bell and a look of its own."""

    def __init__(self, claimer: Claimer) -> None:
        self._claimer = claimer
        self._is_begun = False
        self._sent: tasks.SentClaim | None = None
        self._sent_at = 0.0
        self._offer: Offer | None = None
        self._starts: tasks.SentStarts | None = None
        self._new: list[NewTask] = []

    async def __aenter__(self) -> "Along":
        return self

    async def send(self, conn: Connection, new: Sequence[NewTask]) -> bool:
        self._is_begun = (order := self._claimer.begin_along(new)) is not None
        self._new, self._sent_at = sorted(new, key=lambda task: (task.priority, task.id)), monotonic()
        if order is not None:
            self._claimer.session = conn.pgconn.backend_pid
            self._sent = await tasks.SentClaim.send(conn, self._claimer.who, order)
            await self._start(conn, order)
        return self._is_begun

    async def _start(self, conn: Connection, order: tasks.ClaimOrder) -> None:
        """Make those of its own tasks RUNNING for which children have seats, if the claim before takes them."""
        starter = self._claimer.starter
        self._offer = offer = starter.offer(order, min(order.budget, len(self._new)))
        if offer is not None:
            first = starter.fitting(offer, [task.task_name for task in self._new])
            claims = [Claim(task.id, 1) for task in self._new[:first]]
            self._starts = await tasks.SentStarts.send(conn, self._claimer.who.worker_id, offer.seats, claims)

    async def __aexit__(self, *problem: object) -> None:
        if not self._is_begun:
            return
        rows: list[tasks.Claimed] | None = None
        try:
            if self._sent is not None and problem[0] is None:
                rows = await self._rows(self._sent)
        finally:
            if self._offer is not None:
                self._offer.withdraw()
                self._claimer.starter.wake()
            is_all = rows is not None and {task.id for task in self._new} == {row.id for row in rows}
            self._claimer.end_along(rows, self._offer, is_all=is_all)
            self._is_begun, self._sent, self._offer, self._starts = False, None, None, None

    async def _rows(self, sent: tasks.SentClaim) -> list[tasks.Claimed]:
        rows = await sent.rows()
        if self._starts is not None:
            started = await self._starts.ids()
            seats = zip(self._new, self._offer.seats.seats if self._offer else (), strict=False)
            children = {task.id: child for task, child in seats if task.id in started}
            rows = [row._replace(child=children.get(row.id)) for row in rows]
        if rows and events.listeners:
            events.emit("tasks.claimed", rows=rows, seconds=monotonic() - self._sent_at)
        return rows
