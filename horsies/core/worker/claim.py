"""Claims tasks from the queue: as many as there is room for, whenever there may be some.

NOTIFY only says when to look; the query decides. If a pass returns fewer tasks than requested, the queue is empty as
far as this worker can see. Then the claimer looks again after a few growing delays (a lock or a lost notification may
have hidden a task), and in the end every `notify_poll_interval_ms`. Before a longer sleep it looks ahead: when the next
task falls due, it looks again; after a long sleep it claims only if that look finds a task. Whoever sets a task to a
later time notifies, so that it asks again (T-80). A worker that cannot listen polls with pauses that grow with the time
since the last task (O-01).

A new task wakes one idle worker, the one whose mark in `horsies_waiting` is the newest (D-61). If that worker has no
room, it takes its mark back and wakes another one; so does one that has been full for a moment.

How much may be claimed, and how far ahead of its children the worker may run, is plain arithmetic in `pace.py` (W-24,
W-25, W-25a). What is claimed waits in `in_hand.py` for `start.py`. Tasks that this worker does not know are left to
others: `left_tasks.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from time import monotonic

import psycopg

from horsies.core import events
from horsies.core.db import Pool, is_about_content
from horsies.core.store import caps, tasks
from horsies.core.store.workflows import NewTask
from horsies.core.worker import pace
from horsies.core.worker.children import Children
from horsies.core.worker.dispatch import Dispatcher
from horsies.core.worker.idle import BUSY_S, IdleMark
from horsies.core.worker.in_hand import InHand, Limits, Phase, StopReason
from horsies.core.worker.left_tasks import LeftTasks
from horsies.core.worker.refusals import Refusals, UnknownClaims
from horsies.core.worker.start import Offer, Starter

log = logging.getLogger("horsies.worker")

MANY_QUEUES = 40  # for more it pays to ask first in which of them tasks wait
PAUSES = (pace.FIRST_PAUSE_S, 0.1, 0.5, 1.5)
LONG_PAUSE_S = 0.5  # before one of these it asks when the next task falls due
LAPSED_EVERY_S = 1.0
CAPPED_PAUSE_S = 0.25  # where tasks wait for room under a cap, which another worker may have made
MORE = "more"  # what a worker says that wakes another one, because there is more than it can take


class Claimer:
    """Call `ring()` when there may be tasks and `room()` when there may be room; `step` is one pass."""

    def __init__(
        self,
        pool: Pool,
        who: tasks.Claimant,
        limits: Limits,
        *,
        wake_key: int,
        leaves_unknown: bool,
        in_hand: InHand,
        children: Children,
        dispatcher: Dispatcher,
        starter: Starter,
        poll_s: float,
        is_deaf: bool = False,
        on_claimed: Callable[[], None],
        on_ended: Callable[[str, str], None],
        on_ahead: Callable[[tasks.Outlook], None] = lambda ahead: None,
    ) -> None:
        self._pool = pool
        self.who = who
        self.left = LeftTasks(lambda: children.task_names if leaves_unknown else None)
        self._limits, self._kinds = limits, pace.Kinds(limits)
        self._queues = [name for name, cap in limits.queues if cap != 0]
        self.mark = IdleMark(pool, who.worker_id, wake_key, self._queues, poll_s)
        self._capped = sorted(limits.capped_queues() & set(self._queues))
        self._counting = caps.Counting()
        self._in_hand = in_hand
        self._children = children
        self._dispatcher = dispatcher
        self.starter = starter
        self._poll_s = poll_s
        self._is_deaf = is_deaf  # no notification ever arrives
        self._last_task = monotonic()
        self._on_claimed, self._on_ahead = on_claimed, on_ahead
        self._refusals = Refusals(pool, self._claim, self._next_order, on_ended)
        self._event, self._rings = asyncio.Event(), 0
        self._look_at = 0.0  # when the queue is empty: the time of the next pass
        self._pauses = 0
        self._lapsed_at = 0.0  # when lapsed claims may be looked for again
        self._are_lapsed = False  # there were some when it last looked ahead
        self._is_due = False  # the same, of tasks that wait
        self.unknown = UnknownClaims(pool, who.worker_id, in_hand, on_due=self.room)
        self.session = 0  # of the last claim, in the database
        self._is_called = False  # another process has woken this worker, and nobody has looked since
        self._hears_of_more = False
        self._earned = pace.EARNED  # short tasks that came in a row
        self._shares = pace.Shares(limits.shares)
        self._task_bytes = 0.0  # of the arguments of a task, as they came lately
        self._is_more = False  # the last claim left tasks in a queue for the next one
        self._seen = (0, 0)  # room, and room for sync tasks, at the last look
        self._along: set[str] = set()  # the tasks of a step that claims at this moment
        self.is_looking = False
        self.looked_at: float | None = None  # when a pass last succeeded, or there was no room for one
        self.is_stopped = False

    def call(self, word: str) -> None:
        """Another process has woken this worker, and no other one: for the task of this id, which may be here already
        by a step that claims, or because it has `MORE` than it can take."""
        held = self._in_hand.held.get(word)
        if word in self._along or (held is not None and held.phase is not Phase.SETTLING):
            return
        self._is_called = True
        self._hears_of_more = self._hears_of_more or word == MORE
        self.ring()

    def ring(self) -> None:
        """There may be a task."""
        self._rings += 1
        self._look_at = 0.0
        self._last_task = monotonic()
        self._pauses = min(self._pauses, 1)  # the task may be locked for a moment, or belong to another worker already
        self._event.set()

    def listens_anew(self) -> None:
        """Notifications were missed. After a crash of the server the row in the waiting list is gone too, because its
        table is unlogged."""
        self.mark.forget()
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
        if self.is_looking:  # with a step of the advancer, at this moment
            await self._wait(self._poll_s)
            return
        if self.unknown.are_possible and not self.is_stopped:
            with self._looking():
                await self.unknown.hand_back()
            return
        pause = self._look_at - monotonic()
        order = self._next_order_if_on()
        if order is None:
            if not (self.is_stopped or self._dispatcher.is_shut):
                self.looked_at = monotonic()
            await self._be_full()
            return
        if pause > 0 and not self._may_take_what_was_left(order):
            await self._wait(pause)
            return
        if self._may_sleep_on():
            is_over = await self._sleeps_on() or self.is_looking
            if is_over or (order := self._next_order_if_on()) is None:
                return
        rings, hears_of_more = self._rings, self._hears_of_more
        self._is_called = self._hears_of_more = False
        with self._looking():
            rows = await self._look(order)
        is_more = self._is_more or order.is_answered_in_full(rows)
        if not is_more and not (self.left.has_met_any and self.left.is_walking) and rings == self._rings:
            await self._run_dry()
        elif is_more:
            self._is_called = self._is_called or hears_of_more  # what it leaves, another one shall take at once
            await self._withdraw_idle_when_busy()

    def _may_sleep_on(self) -> bool:
        """Whether it has slept for long, and nothing has happened: then a look ahead is all that is needed."""
        is_rested = self._pauses >= len(PAUSES) and self.is_dry and not self._is_deaf
        return is_rested and not self._are_lapsed and self._walk_pause() is None

    async def _sleeps_on(self) -> bool:
        await self._run_dry()
        self.looked_at = monotonic()
        return not self._is_due and not self._are_lapsed

    async def _be_full(self) -> None:
        """Wait for room. Whoever wakes this worker meanwhile means another one."""
        if not self._is_called:
            await self._wait(BUSY_S if self.mark.is_left else self._poll_s)
        if self._is_called:
            self._hears_of_more = False
            await self.withdraw_idle()
        await self._withdraw_idle_when_busy()

    def _may_take_what_was_left(self, order: tasks.ClaimOrder) -> bool:
        """A pass leaves out sync tasks for which no child is idle (W-30a); with more room they may fit."""
        room, sync_room = self._seen
        return self._limits.concurrency > 1 and (order.room > room or order.sync_budget > sync_room)

    async def _look(self, order: tasks.ClaimOrder) -> list[tasks.Claimed]:
        self._seen, self._is_more = (order.room, order.sync_budget), False
        try:
            rows = await self._claim_all(order)
            self.looked_at = monotonic()
            free_bytes = order.free_bytes - sum(row.size for row in rows)
            is_time = monotonic() >= self._lapsed_at and self._may_be_lapsed(bool(rows))
            if len(rows) < order.budget and free_bytes > 0 and is_time:
                self._lapsed_at = monotonic() + LAPSED_EVERY_S
                self._are_lapsed = False
                rows += await self._claim_all_lapsed(order.queues, order.budget - len(rows), free_bytes)
        except BaseException:
            self.unknown.suspect(self.session)
            raise
        return rows

    def _may_be_lapsed(self, found: bool) -> bool:
        """A worker that is about to sleep for long asks for lapsed claims when it looks ahead."""
        return self._are_lapsed or found or self._is_deaf or self._next_pause() < LONG_PAUSE_S

    def _next_pause(self) -> float:
        return PAUSES[self._pauses] if self._pauses < len(PAUSES) else self._poll_s

    async def _claim_all(self, order: tasks.ClaimOrder) -> list[tasks.Claimed]:
        if self._shares or len(order.queues) > MANY_QUEUES:
            order = order.narrowed(await self._busy(order.queues), self._shares.due())
            if not order.queues:
                return []
        try:
            rows = await self._claim(order)
        except psycopg.Error as problem:
            if not is_about_content(problem):
                raise
            self.unknown.suspect()
            return await self._refusals.claim(order)
        self._is_more = order.is_answered_in_full(rows)
        if self._refusals.are_known:
            self._refusals.forget()
        return rows

    async def _busy(self, queues: Sequence[str]) -> Collection[str]:
        """Those of these queues in which tasks wait; all, if they are so few that each can be looked at (W-22a)."""
        if len(queues) <= MANY_QUEUES:
            return queues
        async with self._pool.connection() as conn:
            busy = await tasks.busy_queues(conn)
        self.looked_at = monotonic()
        return busy.intersection(queues)

    async def _claim_all_lapsed(self, queues: list[str], most: int, free_bytes: int) -> list[tasks.Claimed]:
        try:
            return await self._claim_lapsed(queues, most, free_bytes)
        except psycopg.Error as problem:
            if not is_about_content(problem):
                raise
            return await self._refusals.claim_lapsed(partial(self._claim_lapsed, queues, most, free_bytes))

    def _next_order_if_on(self) -> tasks.ClaimOrder | None:
        is_off = self.is_stopped or self._dispatcher.is_shut or self._in_hand.suspects  # no room beside these
        return None if is_off else self._next_order()

    @contextlib.contextmanager
    def _looking(self) -> Iterator[None]:
        self.is_looking = True
        try:
            yield
        finally:
            self.is_looking = False

    def _next_order(self) -> tasks.ClaimOrder | None:
        self._kinds.look(self._in_hand, monotonic())
        return next(iter(pace.orders(self._limits, self._holding(), self._children.async_names)), None)

    async def _claim(self, order: tasks.ClaimOrder, only: Sequence[str] | None = None) -> list[tasks.Claimed]:
        began = monotonic()
        offer = self.starter.offer(order) if only is None else None
        try:
            async with self._pool.connection() as conn:
                self.session = conn.pgconn.backend_pid
                if self._capped:
                    await self._counting.fold(conn, order.counted)
                line, rows = None, []
                if (self.left.has_met_any or order.sync_budget <= 0) and self.left.may_matter(order):
                    order, line = await self.left.line(conn, order, self.mark, only)
                if line is None or line.parts or only is not None:
                    rows = await tasks.claim(conn, self.who, order, only, self._counting, offer and offer.seats, line)
                if line is not None and only is None:
                    await self.left.claimed(conn, order, line, rows)
        finally:
            if offer is not None:
                offer.withdraw()
                self.starter.wake()  # something else may have found no room meanwhile
        self.looked_at = monotonic()
        if events.listeners:
            events.emit("tasks.claimed", rows=rows, seconds=self.looked_at - began)
        self._take(rows, offer)
        if self._shares and only is None:
            await self._note_shares(order, rows)
        return rows

    async def _note_shares(self, order: tasks.ClaimOrder, rows: list[tasks.Claimed]) -> None:
        emptied = order.emptied(rows)
        for name in order.unclear(rows, self._shares.due()):
            async with self._pool.connection() as conn:
                if not (await tasks.look_ahead(conn, [name])).is_due:
                    emptied.add(name)
        self._shares.note(Counter(row.queue_name for row in rows), emptied, order.queues)

    async def _claim_lapsed(self, queues: list[str], most: int, free_bytes: int) -> list[tasks.Claimed]:
        async with self._pool.connection() as conn:
            rows = await tasks.claim_expired(conn, self.who, queues, most, free_bytes)
        self._take(rows, keeps_all=True)
        return rows

    def begin_along(self, new: Sequence[NewTask]) -> tasks.ClaimOrder | None:
        """What to claim with a step that has enqueued these tasks. Only while nothing else waits as far as is known,
        because the step keeps its workflow locked; and never under a cap, whose lock comes before all others (D-63)."""
        if self.is_looking or not self.is_dry or self.unknown.are_possible or self._leaves_some:
            return None
        order = self._next_order_if_on()
        if order is None or order.counted or {task.queue_name for task in new}.isdisjoint(order.queues):
            return None
        if self._shares or len(order.queues) > MANY_QUEUES:  # such a pass begins with another look
            return None
        self.is_looking = True
        self._along = {task.id for task in new}  # their bells may come before our own reply
        return order

    def end_along(self, rows: list[tasks.Claimed] | None, offer: Offer | None, *, is_all: bool) -> None:
        """The step has ended, and these are claimed; None if nobody knows. `is_all`: all that it has written."""
        self.is_looking, self._along = False, set()
        if rows is None:
            self.unknown.suspect(self.session)
        else:
            self.looked_at, pauses = monotonic(), self._pauses
            self._take(rows, offer)
            self._pauses = pauses  # there is no more reason to look than before the step
        self._event.set() if is_all else self.ring()

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

    def _take(self, rows: list[tasks.Claimed], offer: Offer | None = None, *, keeps_all: bool = False) -> None:
        """Some of them may have to return to the queue: those behind the first so many (W-25a), and those of unknown
        names (O-31). The `offer` was made for them."""
        is_known = self._children.task_names.issuperset(row.task_name for row in rows)
        rows, ours = (rows, len(rows)) if is_known else self.left.ours_first(rows)
        stay = ours if keeps_all else self._keep(rows[:ours])
        async_names = set(self._children.async_names)
        waiting = self._in_hand.waiting
        staying = len(waiting)
        for place, row in enumerate(rows):
            is_async = row.task_name in async_names
            self._kinds.came(is_async, monotonic())
            older = self._in_hand.take(row, is_async=is_async)
            if older is not None:
                self._dispatcher.stop(older, StopReason.LOST)
            if place < stay:
                staying = len(waiting)
        self._dispatcher.hand_back(len(waiting) - staying)
        if offer is not None:
            self.starter.take_seats(offer, rows)
        if rows:
            self._task_bytes = pace.task_bytes(self._task_bytes, sum(row.size for row in rows) / len(rows))
            self._pauses = 0
            self._last_task = monotonic()
            self._on_claimed()

    async def _run_dry(self) -> None:
        if self._is_deaf:
            now = monotonic()
            self._look_at = now + pace.polling_pause(now - self._last_task, self._poll_s)
            return
        pause = self._next_pause()
        self._pauses = min(self._pauses + 1, len(PAUSES))
        now = monotonic()
        self._earned = pace.earned_when_dry(self._earned)
        self._look_at = now + min(pause, self._poll_s)
        if self.mark.is_due(now, before_long_sleep=pause >= self._poll_s):
            await self.mark.leave(self.left.names if self._leaves_some else None)
        if pause >= LONG_PAUSE_S:
            await self._look_ahead()
        if (again_s := self._walk_pause()) is not None:  # some may have returned behind it
            self._look_at = min(self._look_at, now + max(again_s, pace.FIRST_PAUSE_S))

    async def _look_ahead(self) -> None:
        """Look again as soon as the next task falls due. This comes after the request for notifications, so that a task
        that is set to a later time meanwhile is either seen here or notified of."""
        busy = await self._busy(self._queues)
        async with self._pool.connection() as conn:
            ahead = await tasks.look_ahead(conn, self._queues, self._poll_s, busy)
        now = monotonic()
        self._is_due = ahead.is_due
        if ahead.is_due and self._capped:
            self._look_at = min(self._look_at, now + CAPPED_PAUSE_S)
        if ahead.is_lapsed:  # they may be locked, so not at once for ever
            self._are_lapsed = True
            self._look_at = min(self._look_at, max(now, self._lapsed_at))
        if ahead.due_s is not None and (at := now + ahead.due_s) < self._look_at:
            self._look_at = at
            self._pauses = min(self._pauses, 1)  # it may be locked for a moment when it falls due
        self._on_ahead(ahead)

    async def _withdraw_idle_when_busy(self) -> None:
        if self.mark.is_busy_for_long():
            await self.withdraw_idle()

    async def withdraw_idle(self) -> None:
        """There is plenty to do: this worker needs no notifications, and hands on the last one."""
        if self.mark.is_left or self._is_called:
            await self.mark.take_back()
            self._is_called = False

    async def _wait(self, seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()

    @property
    def _leaves_some(self) -> bool:
        return self.left.has_met_any and self.left.is_at_work

    def _walk_pause(self) -> float | None:
        return self.left.pause_s() if self.left.has_met_any else None

    def _holding(self) -> pace.Holding:
        ahead = pace.allowed(self._dispatcher.ahead(), self._earned)
        return pace.holding(self._in_hand, self._children.usable, self._limits, ahead, self._task_bytes)
