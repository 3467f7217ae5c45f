"""Claims tasks from the queue: as many as there is room for, whenever there may be some.

NOTIFY only says when to look; the query decides. If a pass returns fewer tasks than requested, the queue is empty as
far as this worker can see. Then the claimer looks again after a few growing delays (a lock or a lost notification may
have hidden a task), and in the end every `notify_poll_interval_ms`. Before a longer sleep it looks ahead: when the next
task falls due, it looks again; after a long sleep it claims only if that look finds a task. Whoever sets a task to a
later time notifies, so that it asks again (T-80). A worker that cannot listen polls with pauses that grow with the time
since the last task (O-01).

How much may be claimed, and how far ahead of its children the worker may run, is plain arithmetic at the end of this
module and in `pace.py` (W-24, W-25, W-25a). What is claimed waits in `in_hand.py` for `start.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import NamedTuple

import psycopg

from horsies.core import events
from horsies.core.db import Pool, by_halves, describe, is_about_content, is_about_one
from horsies.core.store import tasks, workers
from horsies.core.tasks.moves import Claim, Requeue
from horsies.core.worker import pace
from horsies.core.worker.children import Child, Children
from horsies.core.worker.dispatch import Dispatcher
from horsies.core.worker.in_hand import InHand, Limits, Phase, StopReason
from horsies.core.worker.refusals import Refusals

log = logging.getLogger("horsies.worker")

MAX_BATCH = 1000  # of one claim statement
PAUSES = (0.02, 0.1, 0.5, 1.5)
LONG_PAUSE_S = 0.5  # before one of these it asks when the next task falls due
LAPSED_EVERY_S = 1.0
BUSY_S = 0.25  # a worker that has been given all it asked for this long is busy, and needs no notifications


class Claimer:
    """Call `ring()` when there may be tasks and `room()` when there may be room; `step` is one pass."""

    def __init__(
        self,
        pool: Pool,
        who: tasks.Claimant,
        limits: Limits,
        *,
        in_hand: InHand,
        children: Children,
        dispatcher: Dispatcher,
        poll_s: float,
        is_deaf: bool = False,
        on_claimed: Callable[[], None],
        on_ended: Callable[[str, str], None],
        on_ahead: Callable[[tasks.Outlook], None] = lambda ahead: None,
    ) -> None:
        self._pool = pool
        self._who = who
        self._limits = limits
        self._queues = [name for name, cap in limits.queues if cap != 0]
        self._in_hand = in_hand
        self._children = children
        self._dispatcher = dispatcher
        self._poll_s = poll_s
        self._is_deaf = is_deaf  # no notification ever arrives
        self._last_task = monotonic()
        self._on_claimed = on_claimed
        self._on_ahead = on_ahead
        self._refusals = Refusals(pool, self._claim, self._next_order, on_ended)
        self._event = asyncio.Event()
        self._rings = 0
        self._look_at = 0.0  # when the queue is empty: the time of the next pass
        self._pauses = 0
        self._lapsed_at = 0.0  # when lapsed claims may be looked for again
        self._are_lapsed = False  # there were some when it last looked ahead
        self._is_due = False  # the same, of tasks that wait
        self._may_have_unknown_claims = False
        self._is_announced = False
        self._announcement_is_old_at = 0.0
        self._full_since: float | None = None
        self._earned = pace.EARNED  # short tasks that came in a row
        self._seen = (0, 0)  # room, and room for sync tasks, at the last look
        self.is_looking = False
        self.looked_at: float | None = None  # when a pass last succeeded, or there was no room for one
        self.notify = "always"
        self.is_stopped = False

    def ring(self, _payload: str = "") -> None:
        """There may be a task."""
        self._rings += 1
        self._look_at = 0.0
        self._last_task = monotonic()
        self._pauses = min(self._pauses, 1)  # the task may be locked for a moment, or belong to another worker already
        self._event.set()

    def listens_anew(self) -> None:
        """Notifications were missed. After a crash of the server the row in the waiting list is gone too, because its
        table is unlogged."""
        self._announcement_is_old_at = 0.0
        self.ring()

    def expect(self, delay_s: float) -> None:
        """A task of ours falls due then. Where notifications are on, one says so too."""
        if self.is_dry:
            self._look_at = min(self._look_at, monotonic() + delay_s)
            self._event.set()

    def room(self) -> None:
        """There may be room; this does not mean that there is a task."""
        self._event.set()

    @property
    def is_dry(self) -> bool:
        """Whether the last pass found fewer tasks than there was room for, and no notification has come since."""
        return self._look_at > 0.0

    async def step(self) -> None:
        pause = self._look_at - monotonic()
        is_off = self.is_stopped or self._dispatcher.is_shut
        is_full = is_off or bool(self._in_hand.suspects)  # while a suspect is here, there is no room beside it
        wanted = [] if is_full else orders(self._limits, self._holding(), self._children.async_names)
        if not wanted:
            if not is_off:
                self.looked_at = monotonic()
            await self._wait(BUSY_S if self._is_announced else self._poll_s)
            await self._withdraw_idle_when_busy()
            return
        if pause > 0 and not self._may_take_what_was_left(wanted[0]):
            await self._wait(pause)
            return
        if self._may_sleep_on() and await self._sleeps_on():
            return
        rings = self._rings
        self.is_looking = True
        try:
            await self.hand_back_unknown_claims()
            rows = await self._look(wanted[0])
        finally:
            self.is_looking = False
        is_more = wanted[0].is_answered_in_full(rows)
        if not is_more and rings == self._rings:
            await self._run_dry(found=bool(rows))
        elif is_more:
            self._full_since = self._full_since or monotonic()
            await self._withdraw_idle_when_busy()

    def _may_sleep_on(self) -> bool:
        """Whether it has slept for long, and nothing has happened: then a look ahead is all that is needed."""
        has_slept = self._pauses >= len(PAUSES) and self.is_dry and not self._is_deaf
        return has_slept and not self._may_have_unknown_claims and not self._are_lapsed

    async def _sleeps_on(self) -> bool:
        await self._run_dry(found=False)
        self.looked_at = monotonic()
        return not self._is_due and not self._are_lapsed

    def _may_take_what_was_left(self, order: tasks.ClaimOrder) -> bool:
        """A pass leaves out sync tasks for which no child is idle (W-30a); with more room they may fit."""
        room, sync_room = self._seen
        return self._limits.concurrency > 1 and (order.room > room or order.sync_budget > sync_room)

    async def _look(self, order: tasks.ClaimOrder) -> list[tasks.Claimed]:
        self._seen = (order.room, order.sync_budget)
        try:
            rows = await self._claim_all(order)
            self.looked_at = monotonic()
            if len(rows) < order.budget and monotonic() >= self._lapsed_at and self._may_be_lapsed(bool(rows)):
                self._lapsed_at = monotonic() + LAPSED_EVERY_S
                self._are_lapsed = False
                rows += await self._claim_all_lapsed(order.queues, order.budget - len(rows))
        except BaseException:
            self._may_have_unknown_claims = True
            raise
        return rows

    def _may_be_lapsed(self, found: bool) -> bool:
        """A worker that is about to sleep for long asks for lapsed claims when it looks ahead."""
        return self._are_lapsed or found or self._is_deaf or self._next_pause() < LONG_PAUSE_S

    def _next_pause(self) -> float:
        return PAUSES[self._pauses] if self._pauses < len(PAUSES) else self._poll_s

    async def _claim_all(self, order: tasks.ClaimOrder) -> list[tasks.Claimed]:
        try:
            rows = await self._claim(order)
        except psycopg.Error as problem:
            if not is_about_content(problem):
                raise
            self.suspect_lost_claims()
            return await self._refusals.claim(order)
        if self._refusals.are_known:
            self._refusals.forget()
        return rows

    async def _claim_all_lapsed(self, queues: list[str], most: int) -> list[tasks.Claimed]:
        try:
            return await self._claim_lapsed(queues, most)
        except psycopg.Error as problem:
            if not is_about_content(problem):
                raise
            return await self._refusals.claim_lapsed(partial(self._claim_lapsed, queues, most))

    def _next_order(self) -> tasks.ClaimOrder | None:
        return next(iter(orders(self._limits, self._holding(), self._children.async_names)), None)

    async def _claim(self, order: tasks.ClaimOrder, only: Sequence[str] | None = None) -> list[tasks.Claimed]:
        began = monotonic()
        async with self._pool.connection() as conn:
            rows = await tasks.claim(conn, self._who, order, only)
        self.looked_at = monotonic()
        if events.listeners:
            events.emit("tasks.claimed", rows=rows, seconds=self.looked_at - began)
        self._take(rows, self._keep(rows))
        return rows

    async def _claim_lapsed(self, queues: list[str], most: int) -> list[tasks.Claimed]:
        async with self._pool.connection() as conn:
            rows = await tasks.claim_expired(conn, self._who, queues, most)
        self._take(rows, len(rows))
        return rows

    def _keep(self, rows: list[tasks.Claimed]) -> int:
        """How many of these tasks stay here (W-25a)."""
        limits, dispatcher = self._limits, self._dispatcher
        if not limits.may_run_ahead:
            return len(rows)
        paces = [dispatcher.paces.of(row.task_name) for row in rows]
        now = self._holding()
        free = max(now.slots - now.held, dispatcher.free_slots() - len(self._in_hand.waiting)) + limits.prefetch
        stay = pace.kept(
            paces,
            free=max(0, free),
            ahead=max(0, now.held - now.slots),
            children=len(self._children.usable),
            run_ahead_ms=limits.run_ahead_ms,
        )
        self._earned = pace.earned_by(self._earned, paces, all_kept=stay == len(rows))
        return stay

    def _take(self, rows: list[tasks.Claimed], stay: int) -> None:
        """Only the first `stay` of them stay; the others return to the queue."""
        async_names = set(self._children.async_names)
        waiting = self._in_hand.waiting
        staying = len(waiting)
        for place, row in enumerate(rows):
            older = self._in_hand.take(row, is_async=row.task_name in async_names)
            if older is not None:
                self._dispatcher.stop(older, StopReason.LOST)
            if place < stay:
                staying = len(waiting)
        self._dispatcher.hand_back(len(waiting) - staying)
        if rows:
            self._pauses = 0
            self._last_task = monotonic()
            self._on_claimed()

    async def _run_dry(self, *, found: bool) -> None:
        if self._is_deaf:
            now = monotonic()
            self._look_at = now + polling_pause(now - self._last_task, self._poll_s)
            return
        pause = self._next_pause()
        self._pauses = min(self._pauses + 1, len(PAUSES))
        now = monotonic()
        self._earned = pace.earned_when_dry(self._earned)
        self._full_since = None
        self._look_at = now + min(pause, self._poll_s)
        is_old = not self._is_announced or now >= self._announcement_is_old_at
        # In the other modes too before a long sleep, because the recorded mode may have changed (D-60).
        if pause >= self._poll_s or (self.notify == "when_waiting" and is_old and not found):
            await self._announce_idle()
        if pause >= LONG_PAUSE_S:
            await self._look_ahead()

    async def _look_ahead(self) -> None:
        """Look again as soon as the next task falls due. This comes after the request for notifications, so that a task
        that is set to a later time meanwhile is either seen here or notified of."""
        async with self._pool.connection() as conn:
            ahead = await tasks.look_ahead(conn, self._queues, self._poll_s)
        now = monotonic()
        self._is_due = ahead.is_due
        if ahead.is_lapsed:  # they may be locked, so not at once for ever
            self._are_lapsed = True
            self._look_at = min(self._look_at, max(now, self._lapsed_at))
        if ahead.due_s is not None and (at := now + ahead.due_s) < self._look_at:
            self._look_at = at
            self._pauses = min(self._pauses, 1)  # it may be locked for a moment when it falls due
        self._on_ahead(ahead)

    async def _announce_idle(self) -> None:
        """Request notifications for inserts, until some time after the next pass, which closes the gap."""
        until, begun = timedelta(seconds=2 * self._poll_s + 5), monotonic()
        async with self._pool.connection() as conn:
            self.notify = await workers.announce_idle(conn, self._who.worker_id, self._queues, until)
        self._is_announced = self.notify == "when_waiting"
        self._announcement_is_old_at = begun + self._poll_s

    async def _withdraw_idle_when_busy(self) -> None:
        """Do not withdraw for every task that fills the room for a moment: each request is a row that is written, and a
        dead row later."""
        if self._full_since is not None and monotonic() - self._full_since > BUSY_S:
            await self.withdraw_idle()

    async def withdraw_idle(self) -> None:
        """There is plenty to do: this worker needs no notifications."""
        if self._is_announced:
            self._announcement_is_old_at = 0.0  # first, because the row may be gone even if the reply is lost
            async with self._pool.connection() as conn:
                await workers.withdraw_idle(conn, self._who.worker_id, self._queues)
            self._is_announced = False

    async def _wait(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()

    def suspect_lost_claims(self) -> None:
        """A claim was no longer ours. If a crash of the server lost that claim and we have claimed the task again under
        the same number, the new claim has just been dropped with the old one (L-03)."""
        self._may_have_unknown_claims = True

    async def hand_back_unknown_claims(self) -> None:
        """After a claim whose reply was lost, the database may have given us tasks that we do not know of (W-21)."""
        if not self._may_have_unknown_claims:
            return
        # This is first, so that a suspicion that comes up meanwhile counts for the next look.
        self._may_have_unknown_claims = False
        try:
            async with self._pool.connection() as conn:
                known = {held.claim for held in self._in_hand}
                unknown = [
                    claim for claim in await tasks.unknown_claims(conn, self._who.worker_id) if claim not in known
                ]
                if unknown:
                    log.info("returning %d claims to the queue because the reply to the claim was lost", len(unknown))
                    await by_halves(
                        unknown,
                        lambda part: tasks.apply(conn, self._who.worker_id, [Requeue(claim) for claim in part]),
                        is_refusal=is_about_one,
                        give_up=_left_behind,
                    )
        except BaseException:
            self._may_have_unknown_claims = True
            raise

    def _holding(self) -> Holding:
        usable = self._children.usable
        in_hand = self._in_hand
        idle = sum(1 for child in usable if child.load == 0)
        waiting_sync = taken_whole = 0
        if self._limits.concurrency > 1:
            waiting_sync = sum(1 for held in in_hand.waiting if not held.is_async)
            taken_whole = sum(1 for child in usable if child.has_sync) + min(idle, waiting_sync)
        ahead = pace.allowed(self._dispatcher.ahead(), self._earned)
        return Holding(
            slots=len(usable) * self._limits.concurrency,
            held=len(in_hand) - (0 if ahead else self._ended_but_unwritten(usable)),
            claimed=in_hand.count(Phase.CLAIMED, Phase.STARTING)
            if self._limits.max_claim_per_worker
            else len(in_hand.waiting),
            idle_children=idle,
            ahead=ahead,
            waiting_sync=waiting_sync,
            taken_whole=taken_whole,
        )

    def _ended_but_unwritten(self, usable: list[Child]) -> int:
        """Tasks whose code has ended hold no slot. This matters where writing their ends takes longer than running
        them."""
        brisk = sum(self._limits.concurrency for child in usable if pace.is_short(child.pace_ms))
        return min(brisk, self._in_hand.count(Phase.SETTLING)) if brisk else 0


def _left_behind(claim: Claim, problem: Exception) -> None:
    facts = {"horsies": {"task_id": claim.task_id}}
    log.warning("a claim cannot be returned, and is left until its lease runs out: %s", describe(problem), extra=facts)


def polling_pause(idle_s: float, longest_s: float) -> float:
    """How long to wait before the next look, if nothing but a look finds tasks: short while there is work, and then at
    most a quarter of the time for which there has been none."""
    return min(longest_s, max(PAUSES[0], idle_s / 4))


class Holding(NamedTuple):
    """What the worker holds right now."""

    slots: int
    held: int
    claimed: int
    idle_children: int
    ahead: int  # how many more tasks than slots the children may have before them
    waiting_sync: int = 0
    taken_whole: int = 0  # children that a sync task has, or will have, to itself


def orders(limits: Limits, now: Holding, async_names: list[str]) -> list[tasks.ClaimOrder]:
    """The claim statements of one pass: what W-24 allows, plus what run-ahead adds for queues without any cap."""
    per_worker = (limits.max_claim_per_worker or now.slots + limits.prefetch) - now.claimed
    room = now.slots + limits.prefetch - now.held - now.taken_whole * (limits.concurrency - 1)
    strict = min(room, per_worker)
    ahead = now.ahead if limits.may_run_ahead else 0
    open_queues = [(name, cap) for name, cap in limits.queues if cap != 0]
    uncapped = [(name, cap) for name, cap in open_queues if cap is None]
    if len(uncapped) == len(open_queues):
        found = [_order(limits, now, open_queues, strict + ahead, room, ahead, async_names)]
    else:
        found = [_order(limits, now, open_queues, strict, room, 0, async_names)]
        if strict <= 0:
            found = [_order(limits, now, uncapped, strict + ahead, room, ahead, async_names)]
    return [order for order in found if order.budget > 0 and order.queues]


def _order(
    limits: Limits,
    now: Holding,
    queues: Sequence[tuple[str, int | None]],
    budget: int,
    room: int,
    ahead: int,
    async_names: list[str],
) -> tasks.ClaimOrder:
    budget = min(budget, MAX_BATCH)
    sync_budget, whole = budget, 0
    if limits.concurrency > 1:
        whole = max(0, now.idle_children - now.waiting_sync)
        sync_budget = max(0, now.idle_children - now.waiting_sync + limits.prefetch + ahead)
    return tasks.ClaimOrder(
        queues=[name for name, _ in queues],
        takes=[min(limits.max_claim_batch or budget, budget)] * len(queues),
        caps=[cap for _, cap in queues],
        budget=budget,
        sync_budget=sync_budget,
        cluster_cap=limits.cluster_cap,
        hard=limits.hard,
        async_names=async_names,
        room=room + ahead,
        whole=whole,
        concurrency=limits.concurrency,
    )
