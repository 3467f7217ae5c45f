"""Makes claimed tasks RUNNING, as many as possible in one statement, and only then lets them reach a child (L-09).

Tasks of workflows use a separate transaction: their nodes are locked before them and become RUNNING with them, and the
state of their workflow is checked (L-25). A batch without such tasks is not affected. The dispatcher takes over from
here; a task that cannot start goes to the finalizer.

`Apart` runs suspects apart (R-58). A suspect is a task that was interrupted by the deaths of its workers so often that
the next death would fail it. Perhaps another task killed those workers; so a suspect gets a worker to itself, and if
that worker dies too, it was the suspect.

The worker stops claiming and starting, returns what it has not started, and waits until everything else has ended.
Then it runs the suspect, alone. `turn_of_suspect` decides; `Apart` keeps the one suspect whose turn it is. Neither the
suspect nor the others can starve. A worker that does not become free in time returns the suspect to the queue, and
waits twice as long for the next one. After each suspect, the other tasks have as much time as it took.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum, auto
from itertools import takewhile
from time import monotonic
from typing import NamedTuple

from horsies.core import events
from horsies.core.child.wire import clock
from horsies.core.db import AWAY, halves, is_about_content, pool
from horsies.core.store import odd_rows, tasks, workflows
from horsies.core.tasks.moves import Claim, Requeue, SetAside
from horsies.core.text import counted
from horsies.core.types import WorkflowStatus
from horsies.core.worker import config, dispatch, finalize
from horsies.core.worker.children import Child, Children, reserve
from horsies.core.worker.dispatch import Dispatcher
from horsies.core.worker.finalize import Finalizer
from horsies.core.worker.in_hand import HeldTask, InHand, Phase, log_fields
from horsies.core.workflows import finish

log = logging.getLogger("horsies.worker")

MAX_BATCH = 500

LOOK_PAST = 64  # tasks without a free child that are passed over to find one that has

NODE_PAUSE_S = 0.05  # before the next look at a node that somebody else has locked

NODE_PATIENCE_S = 2.0  # after its claim such a task goes back to the queue


_Start = Callable[[list[HeldTask]], Awaitable[None]]


class Offer(NamedTuple):
    """Reserved places in children, for tasks that a claim makes RUNNING with the same statement (W-21b)."""

    children: list[Child]
    seats: tasks.Seats
    sent: float

    def withdraw(self) -> None:
        for child in self.seats.seats:
            self.children[child - 1].reserved -= 1


class Starter:
    """Call `wake()` when there are claimed tasks or free children; `step` is one batch."""

    def __init__(
        self,
        me: config.Identity,
        *,
        connections: finalize.ConnectionChoice,
        in_hand: InHand,
        children: Children,
        dispatcher: dispatch.Dispatcher,
        finalizer: finalize.Finalizer,
        apart: Apart,
        aborts: Counter[str],
        on_ended: Callable[[str, str], None],
    ) -> None:
        self._aborts = aborts
        self._on_ended = on_ended  # a task of a workflow was cancelled here: its id, and that of the workflow
        self._connections = connections
        self._worker_id = me.worker_id
        self._hostname = me.hostname
        self._in_hand = in_hand
        self._children = children
        self._dispatcher = dispatcher
        self._finalizer = finalizer
        self._apart = apart
        self._event = asyncio.Event()
        self.is_starting = False

    def wake(self) -> None:
        if self._in_hand.waiting:
            self._event.set()

    async def step(self) -> None:
        await self._event.wait()
        self._event.clear()
        batch = self._place()
        while batch:
            self.is_starting = True
            try:
                await self._start(batch)
            except AWAY:
                self.wake()  # for those behind them
                raise
            finally:
                self.is_starting = False
            batch = self._place()

    def offer(self, order: tasks.ClaimOrder, most: int | None = None) -> Offer | None:
        """Reserve places for what this claim may bring, or None: the tasks are then started after it, as they are where
        it weighs them (W-30a), or where others wait to be started."""
        waits = self._in_hand.waiting or self._in_hand.suspects or self._dispatcher.is_held_up
        if order.concurrency > 1 or waits or not self._dispatcher.may_start:
            return None
        children = self._children.usable
        idle = sum(1 for child in children if child.load == 0)
        seats = reserve(children, order.budget if most is None else most, self._dispatcher.max_tasks)
        if not seats:
            return None
        pids, names = [child.pid for child in children], [child.name for child in children]
        short_names = self._dispatcher.paces.short_names
        return Offer(children, tasks.Seats(seats, pids, names, self._hostname, idle, short_names), clock())

    def fitting(self, offer: Offer, names: Sequence[str]) -> int:
        """How many tasks of these names, from the first on, find a seat: the decision that `claim.sql` makes itself."""
        short = sum(1 for _ in takewhile(self._dispatcher.paces.is_short, names))
        return min(len(names), len(offer.seats.seats), max(offer.seats.free, short))

    def take_seats(self, offer: Offer, rows: Sequence[tasks.Claimed]) -> None:
        """These have come in answer to it, and the worker holds them: those with a seat go to their children."""
        begun: list[HeldTask] = []
        for row in rows:
            held = self._in_hand.held.get(row.id)
            if row.child is not None and held is not None and held.row is row:
                self._dispatcher.seat(held, offer.children[row.child - 1])
                begun.append(held)
        if begun:
            self._accept(begun, {held.id for held in begun}, offer.sent)

    def hand_back(self) -> None:
        """Nothing more is started: tasks that are only claimed return to the queue (W-51)."""
        while self._in_hand.waiting:
            held = self._in_hand.waiting.popleft()
            self._finalizer.put(held, Requeue(held.claim))

    def _place(self) -> list[HeldTask]:
        """Tasks for which a child has room, in order; a place in the child is reserved for each."""
        if not self._apart.may_place():
            return []
        batch: list[HeldTask] = []
        passed: list[HeldTask] = []
        waiting = self._in_hand.waiting
        while waiting and len(batch) < MAX_BATCH and len(passed) < LOOK_PAST and self._dispatcher.may_start:
            held = waiting.popleft()
            if self._dispatcher.place(held) is None:
                passed.append(held)
            else:
                held.phase = Phase.STARTING
                batch.append(held)
        waiting.extendleft(reversed(passed))
        return batch

    async def _start(self, batch: list[HeldTask]) -> None:
        nodes = [held for held in batch if held.row.workflow_id is not None]
        if not nodes:
            await self._start_tasks(batch)
            return
        plain = [held for held in batch if held.row.workflow_id is None]
        await _all_parts((self._start_tasks, plain), (self._start_nodes, nodes))

    async def _start_tasks(self, batch: list[HeldTask]) -> None:
        try:
            async with self._connections.connection() as conn:
                sent = clock()
                started = await tasks.start(conn, *self._given(batch))
        except AWAY as problem:
            if is_about_content(problem):
                await self._refused(batch, problem, self._start_tasks)
                return
            self._unconfirmed(batch)
            raise
        self._accept(batch, started, sent)

    async def _start_nodes(self, batch: list[HeldTask]) -> None:
        """The nodes first, then the tasks (D-63), in one statement. If it is not confirmed, all return to the queue; if
        the connection has outlived a failure, nothing can have been written."""
        conn: pool.Connection | None = None
        try:
            async with self._connections.connection() as conn:
                sent = clock()  # before the transaction, whose beginning is the start of the task
                checks = await tasks.start_nodes(conn, *self._given(batch))
        except AWAY as problem:
            if is_about_content(problem):
                await self._refused(batch, problem, self._start_nodes)
                return
            if conn is None or not conn.closed:
                self._check_failed(batch)
            else:
                self._unconfirmed(batch)
            raise
        may = [held for held in batch if _may_start(checks.get(held.id))]
        self._accept(may, {held.id for held in may if checks[held.id].is_started}, sent)
        self._try_again([held for held in batch if held.id not in checks])
        stopped = [held for held in batch if held.id in checks and not _may_start(checks[held.id])]
        if stopped:
            await self._stop(stopped, checks)

    async def _refused(self, batch: list[HeldTask], problem: Exception, start: _Start) -> None:
        """Nothing was written, because of what is in one of these rows: start them in smaller parts, and set aside the
        one that is left (L-19a)."""
        if len(batch) > 1:
            await _all_parts(*((start, list(half)) for half in halves(batch)))
            return
        [held] = batch
        if await self._mended(held):
            await start(batch)
            return
        self._dispatcher.release(held)
        self._finalizer.put(held, SetAside(held.claim, await odd_rows.reason_of(self._connections, held.id, problem)))

    async def _mended(self, held: HeldTask) -> bool:
        """Whether something in the rows of its workflow was outside the limits, and is not any more."""
        with contextlib.suppress(*AWAY):
            flow = held.row.workflow_id
            return flow is not None and await odd_rows.mend_workflows(self._connections, [flow])
        return False

    def _given(self, batch: list[HeldTask]) -> tuple[str, str, list[Claim], list[int], list[str]]:
        pids = [held.child.pid if held.child else 0 for held in batch]
        names = [held.child.name if held.child else "" for held in batch]
        return self._worker_id, self._hostname, [held.claim for held in batch], pids, names

    def _accept(self, batch: list[HeldTask], started: set[str], sent: float) -> None:
        begun = [held for held in batch if held.id in started]
        if events.listeners:
            events.emit("tasks.started", batch=begun, seconds=clock() - sent)
        self._dispatcher.accept(begun, sent)
        for held in batch:
            if held.id not in started:
                self._not_started(held)

    async def _stop(self, batch: list[HeldTask], checks: Mapping[str, tasks.NodeCheck]) -> None:
        """Their workflows do not allow them to run: they return to the queue (L-13), or never run again (L-18). This is
        a separate transaction, because tasks are locked by id, all at once."""
        over = [held.id for held in batch if checks[held.id].workflow.is_terminal]
        cancelled: set[str] = set()
        try:
            if over:
                async with self._connections.connection() as conn:
                    cancelled = await workflows.cancel_tasks(conn, over, finish.CANCELLED.result or "")
        finally:
            for held in batch:
                self._stopped(held, checks[held.id], is_cancelled=held.id in cancelled)

    def _stopped(self, held: HeldTask, check: tasks.NodeCheck, *, is_cancelled: bool) -> None:
        self._dispatcher.release(held)
        self._aborts["WORKFLOW_STOPPED"] += 1
        fields = {**log_fields(held), "workflow_id": held.row.workflow_id}
        log.info("WORKFLOW_STOPPED: the task is not run, its workflow is %s", check.workflow, extra={"horsies": fields})
        if is_cancelled:
            self._dispatcher.forget(held)
            self._on_ended(held.id, held.row.workflow_id or "")
        else:
            self._finalizer.put(held, Requeue(held.claim), uncertain=True)

    def _try_again(self, batch: list[HeldTask]) -> None:
        """Their nodes are locked elsewhere, usually for a moment. They stay claimed for a short while."""
        now = monotonic()
        if late := [held for held in batch if now - held.since > NODE_PATIENCE_S]:
            self._check_failed(late, NODE_PATIENCE_S)  # others have a turn, also if it is the first of its queue
        if soon := [held for held in batch if now - held.since <= NODE_PATIENCE_S]:
            for held in soon:
                self._dispatcher.release(held)
            asyncio.get_running_loop().call_later(NODE_PAUSE_S, self._line_up, soon)

    def _line_up(self, batch: list[HeldTask]) -> None:
        for held in reversed(batch):
            if held.stop is not None:  # taken from us meanwhile
                self._dispatcher.forget(held)
            elif self._in_hand.holds(held):
                held.phase = Phase.CLAIMED
                self._in_hand.waiting.appendleft(held)
        self.wake()

    def _check_failed(self, batch: list[HeldTask], delay_s: float | None = None) -> None:
        self._aborts["WORKFLOW_CHECK_FAILED"] += len(batch)
        count = counted(len(batch), "task")
        log.warning("WORKFLOW_CHECK_FAILED: the workflows of %s could not be read; returned to the queue", count)
        for held in batch:
            self._dispatcher.release(held)
            self._finalizer.put(held, Requeue(held.claim, delay_s))

    def _unconfirmed(self, batch: list[HeldTask]) -> None:
        """It is unknown whether they are RUNNING, so they do not run; they return to the queue when the database
        answers (L-27)."""
        self._aborts["OWNERSHIP_UNCONFIRMED"] += len(batch)
        count = counted(len(batch), "task")
        log.warning("OWNERSHIP_UNCONFIRMED: the start of %s was not confirmed; returned to the queue", count)
        for held in batch:
            self._dispatcher.release(held)
            self._finalizer.put(held, Requeue(held.claim), uncertain=True)

    def _not_started(self, held: HeldTask) -> None:
        self._dispatcher.release(held)
        if held.row.has_deadline:
            # Past its deadline or lost; if it is lost, this move finds nothing (L-25).
            self._finalizer.put(held, finalize.of_deadline(held, self._worker_id), uncertain=True)
            return
        self._aborts["CLAIM_LOST"] += 1
        log.info("CLAIM_LOST: the task was taken back before it started", extra={"horsies": log_fields(held)})
        self._dispatcher.forget(held)


async def _all_parts(*parts: tuple[_Start, list[HeldTask]]) -> None:
    """Start each part. A part that loses the database has handled its own tasks, so the others must still be tried."""
    problem: BaseException | None = None
    for start, part in parts:
        try:
            if part:
                await start(part)
        except AWAY as away:
            problem = away
    if problem is not None:
        raise problem


def _may_start(check: tasks.NodeCheck | None) -> bool:
    """Also if its deadline has passed: the start itself refuses that, whatever the state of the workflow (L-25)."""
    return check is not None and (check.is_overdue or check.workflow in _UNDER_WAY)


_UNDER_WAY = (WorkflowStatus.PENDING, WorkflowStatus.RUNNING)

PATIENCE_S = 60.0  # for a worker to become free, the first time

SHORTEST_PAUSE_S = 1.0


class Turn(Enum):
    """What happens to a suspect now."""

    START = auto()
    WAIT = auto()  # until the others have ended
    LATER = auto()  # it returns to the queue


def turn_of_suspect(others: int, waited_s: float, patience_s: float, rest_s: float) -> Turn:
    """`others`: tasks that this worker holds and that are no suspects; `rest_s`: how much longer it is their turn."""
    if others == 0:
        return Turn.START
    return Turn.LATER if rest_s > 0 or waited_s > patience_s else Turn.WAIT


class Apart:
    """The starter asks `may_place` before it places anything."""

    def __init__(
        self,
        in_hand: InHand,
        dispatcher: Dispatcher,
        children: Children,
        finalizer: Finalizer,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._in_hand = in_hand
        self._dispatcher = dispatcher
        self._children = children
        self._finalizer = finalizer
        self._clock = clock
        self._chosen: HeldTask | None = None
        self._since = 0.0
        self._rest_until = 0.0
        self._patience_s = PATIENCE_S

    def is_waiting(self) -> bool:
        """Whether a suspect waits for the others to end. It is asked often, and notices when a suspect has ended."""
        if self._chosen is not None and self._chosen not in self._in_hand.suspects:
            self._end_turn()
            self._patience_s = PATIENCE_S
        return self._chosen is not None and self._chosen.phase is Phase.CLAIMED

    def may_place(self) -> bool:
        """Whether tasks that wait may be started now. If a suspect may, it is the only one that waits."""
        self.is_waiting()
        suspect = self._chosen or self._next()
        if suspect is None:
            return True
        if suspect.phase is not Phase.CLAIMED:  # it runs, or its end is being written
            self._hand_back(suspect)
            return False
        now = self._clock()
        waited_s = 0.0 if self._chosen is None else now - self._since
        others = sum(1 for held in self._in_hand if held not in self._in_hand.suspects)
        turn = turn_of_suspect(others, waited_s, self._patience_s, self._rest_until - now)
        if turn is Turn.LATER:
            self._postpone(now)
            return True
        if self._chosen is None:
            self._begin_turn(suspect, others)
        self._hand_back(suspect)
        return turn is Turn.START

    def _next(self) -> HeldTask | None:
        if not self._in_hand.suspects:
            return None
        return next((held for held in self._in_hand.waiting if held in self._in_hand.suspects), None)

    def _begin_turn(self, suspect: HeldTask, others: int) -> None:
        self._chosen, self._since = suspect, self._clock()
        log.warning(
            "the deaths of its workers have interrupted the task %d times; it runs alone, after the end of %d others",
            suspect.row.recoveries,
            others,
            extra={"horsies": log_fields(suspect)},
        )
        for child in self._children.children:
            self._dispatcher.take_back(child)

    def _end_turn(self) -> None:
        now = self._clock()
        self._rest_until, self._chosen = now + (now - self._since), None

    def _postpone(self, now: float) -> None:
        if self._chosen is not None:
            log.warning(
                "the worker did not become free within %g s; the task returns to the queue", self._patience_s,
                extra={"horsies": log_fields(self._chosen)},
            )  # fmt: skip
            self._patience_s *= 2
            self._end_turn()
        delay_s = max(SHORTEST_PAUSE_S, self._rest_until - now)
        for held in [held for held in self._in_hand.waiting if held in self._in_hand.suspects]:
            self._in_hand.waiting.remove(held)
            self._finalizer.put(held, Requeue(held.claim, delay_s))

    def _hand_back(self, suspect: HeldTask) -> None:
        """Everything else that waits is for other workers."""
        waiting = self._in_hand.waiting
        rest = [held for held in waiting if held is not suspect]
        for held in rest:
            waiting.remove(held)
            self._finalizer.put(held, Requeue(held.claim))
