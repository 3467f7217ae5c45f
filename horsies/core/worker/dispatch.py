"""Sends started tasks to the children and handles everything that happens to them: feeding, timeouts, stops,
take-backs, deaths. The processes themselves are in `children.py`, what an end means is in `finalize.py`.

The supervisor always knows which task a child is running: a task is sent to the child only after its RUNNING is
committed, and the child reports `started` before it calls the function. So whatever happens to a child, each of its
tasks has exactly one correct end, which goes to the finalizer as a move.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterable
from time import monotonic

from horsies.core.child.wire import Frame, Kind, WireError, done_of, pack, pack_tokens, tokens_of
from horsies.core.tasks.moves import Move, Requeue
from horsies.core.worker import finalize
from horsies.core.worker.children import Child, Children
from horsies.core.worker.fence import Fence
from horsies.core.worker.in_hand import HeldTask, InHand, Limits, Phase, StopReason, log_fields, next_to_start
from horsies.core.worker.pace import Paces, ahead_limit, feed_limit, kept, patience_s

log = logging.getLogger("horsies.worker")

WATCH_S = 0.05  # between two looks at tasks that may be long
SOFT_GRACE_S = 1.0  # from the soft stop to SIGTERM, and from there to SIGKILL
FEED_BYTES = 4 << 20  # of arguments that are sent to a child at once
SMALL_BYTES = 4096  # smaller arguments are kept until the end of their task
ASYNC_GRACE_S = 5.0  # an async task may clean up this long before its child is killed (W-30a)


class Dispatcher:
    """Everything between the start of a task and its end. `crash_of` decides about a task whose child died while it ran
    the task, or when the task was next."""

    def __init__(
        self,
        *,
        in_hand: InHand,
        children: Children,
        finalizer: finalize.Finalizer,
        limits: Limits,
        fence: Fence,
        max_tasks_per_child: int,
        max_memory_mb: int | None,
        crash_of: Callable[[HeldTask, Child, str], Move],
        on_room: Callable[[], None],
        entry_of: Callable[[HeldTask], bytes],
    ) -> None:
        children.report_to(self.on_frames, self.on_death)
        finalizer.on_replaced = self._replaced
        self._children = children
        self._in_hand = in_hand
        self._finalizer = finalizer
        self._limits = limits
        self._fence = fence
        self.max_tasks = max_tasks_per_child
        self._max_memory_mb = max_memory_mb
        self._crash_of = crash_of
        self._on_room = on_room
        self._entry_of = entry_of  # for the start journal
        self.paces = Paces()
        self._is_watching = False
        self._late_s = 0.0  # how late our own timers are
        self._is_surprised = False  # a task was long, and others that were taken for short ones may be as long
        self.is_held_up, self._held_up_at = False, 0.0  # too many bytes of results wait here (W-25b); since when
        self.on_lost: Callable[[], None] = lambda: None  # a task was not ours any more
        self.on_note: Callable[[HeldTask, Kind, list[bytes]], None] = lambda held, kind, parts: None  # P-50, P-51a
        self.is_stopping = False
        self.is_shut = False  # the worker's own heartbeats fail, and nothing is started

    # Placing and feeding

    def ahead(self) -> int:
        """How many tasks beyond its slots the worker may hold now (W-25a)."""
        return sum(child.ahead for child in self._children.usable)

    def _set_ahead(self, child: Child) -> None:
        if child.slow is not None:
            if self._has(child, child.slow):
                child.ahead = 0
                return
            child.slow = None
        limit = ahead_limit(child.pace_ms, self._limits.run_ahead_ms) if self._limits.may_run_ahead else 0
        child.ahead = min(limit, self.max_tasks - child.assigned - 1) if self.max_tasks else limit

    def _has(self, child: Child, held: HeldTask) -> bool:
        return held.child is child and held.phase is not Phase.SETTLING and self._in_hand.holds(held)

    def place(self, held: HeldTask) -> Child | None:
        """Reserve a place in a child for this task; None if no child has room. Nothing more is placed behind one that
        is not known to be short."""
        best: Child | None = None
        least = 0
        for child in self._children.usable:
            load = child.load
            if best is not None and load >= least:
                continue
            if load <= child.ahead or load == 0 or self._has_slot(child, held, load):
                best, least = child, load
        if best is not None:
            self.seat(held, best)
        return best

    def seat(self, held: HeldTask, child: Child) -> None:
        """This child will run the task."""
        child.starting.add(held)
        child.assigned += 1
        held.child = child
        if not self.paces.is_short(held.row.task_name):
            child.slow, child.ahead = held, 0
        if self.max_tasks:
            self._set_ahead(child)
            if child.assigned >= self.max_tasks:
                self._children.retire(child)

    def _has_slot(self, child: Child, held: HeldTask, load: int) -> bool:
        return held.is_async and load < self._limits.concurrency and not child.has_sync

    def release(self, held: HeldTask) -> None:
        """Release the reserved place, because the task did not start."""
        if held.child is not None:
            held.child.starting.discard(held)
            held.child.assigned -= 1
            held.child = None

    @property
    def may_start(self) -> bool:
        return not (self.is_stopping or self.is_shut)

    def accept(self, batch: list[HeldTask], sent: float) -> None:
        """These tasks are RUNNING in the database now, by a statement sent at `sent`: send them to their children."""
        children, now, may_start = dict[int, Child](), monotonic(), self.may_start
        for held in batch:
            child = held.child
            assert child is not None
            child.starting.discard(held)
            held.since, held.last_beat, held.sign = now, 0.0, sent
            if held.stop is StopReason.LOST:
                self.forget(held)
            elif child.is_dead or not may_start:
                self._settle(held, Requeue(held.claim))
            else:
                held.phase = Phase.LINED
                child.line.append(held)
                children[child.pid] = child
        for child in children.values():
            if child.ahead == 0:
                self._take_back_surplus(child)
            self._feed(child)
        self._watch()

    def _drop_late(self, child: Child) -> None:
        """After a pause, others may have the waiting tasks, or take them soon: children do not get them (R-101)."""
        while child.line and self._fence.is_late(child.line[0].sign):
            held = child.line.popleft()
            self._settle(held, Requeue(held.claim))

    def _feed(self, child: Child) -> None:
        if child.line:
            self._drop_late(child)
        if child.line and not child.fed:
            self._fence.tell(child, child.line[0].sign)
        most = feed_limit(child.pace_ms, self._limits.concurrency)
        if len(child.fed) > most // 2 and self._limits.concurrency == 1:
            return  # many at once cost one system call, and wake it once
        frames: list[bytes] = []
        is_traced, size = child.is_traced, 0
        while child.line and len(child.fed) < most and size < FEED_BYTES and not self.is_held_up:
            held = child.line.popleft()
            held.phase = Phase.FED
            if not child.fed:
                self._watch_time(held)
            child.fed[held.token] = held
            row = held.row
            size += row.size
            frames.append(held.run_frame(self._entry_of(held), is_traced=is_traced))
            if row.size > SMALL_BYTES:
                held.row = row._replace(args=None, kwargs=None)  # nobody needs them any more
        if frames:
            child.write(b"".join(frames))

    def _hold_up(self) -> None:
        """Too many bytes of results wait to be written (W-25b)."""
        self.is_held_up, self._held_up_at = True, monotonic()
        for child in self._children.children:
            self._ask_back(child, 0)
        self._watch()

    def feed_on(self) -> None:
        """Results were written: children that had to wait for that get their tasks. Their lines may have become shorter
        meanwhile, and no child says so."""
        if self.is_held_up and self._in_hand.result_bytes < self._limits.max_held_bytes:
            self.is_held_up = False
            for child in self._children.children:
                self._feed(child)
            self._on_room()

    def _leave_to_others(self) -> None:
        """Nothing that waits here can begin soon, and nothing more is claimed meanwhile: others may run it (W-25b)."""
        for child in self._children.children:
            self.take_back(child)
        self.hand_back(len(self._in_hand.waiting))

    # What children say

    def on_frames(self, child: Child, frames: list[Frame]) -> None:
        for kind, number, parts in frames:
            if kind is Kind.STARTED:
                self._started(child, number)
            elif kind is Kind.DONE:
                self._done(child, number, parts)
            elif kind is Kind.GAVE_UP:
                for token in tokens_of(parts):
                    self._gave_up(child, token)
            elif (held := child.fed.get(number)) is not None:  # a beat has the number 0, which no task has
                self.on_note(held, kind, parts)
        self._set_ahead(child)
        if self._is_surprised:
            self.hand_back_surplus()
        self._feed(child)
        if child.is_retiring:
            self._children.dismiss_idle()
        self._on_room()

    def _started(self, child: Child, token: int) -> None:
        held = child.fed.get(token)
        if held is not None and held.phase is Phase.FED:  # it may be said twice, by the socket and by the outbox
            held.phase = Phase.STARTED
            held.started = monotonic()
            self._in_hand.forget_arguments(held)  # the child has read them
            self._watch_time(held)

    def _done(self, child: Child, token: int, parts: list[bytes]) -> None:
        held = child.fed.pop(token, None)
        if held is None:
            return
        held.phase = Phase.STARTED  # of a brief task only the end is reported
        try:
            done = done_of(parts)
        except WireError as problem:
            self._settle(held, finalize.of_unreadable_report(held, str(problem)))
            return
        run_ms = done.run_ns / 1e6
        held.started = monotonic() - run_ms / 1000
        child.note_run(run_ms, done.rss_kb)
        self._is_surprised |= self.paces.note(held.row.task_name, run_ms)
        if self._max_memory_mb and child.rss_mb > self._max_memory_mb and not child.is_retiring:
            log.info("child process %s uses %.0f MB and is replaced", child.name, child.rss_mb)
            self._children.retire(child)
        if held.stop is StopReason.LOST:
            self.forget(held)
        elif held.stop is StopReason.TIMEOUT and done.stopped:
            self._timed_out(held)
        else:
            self._settle(held, finalize.of_report(held, done))
            if self._in_hand.result_bytes >= self._limits.max_held_bytes and not self.is_held_up:
                self._hold_up()

    def _gave_up(self, child: Child, token: int) -> None:
        held = child.fed.pop(token, None)
        if held is None:
            return
        if held.stop is StopReason.LOST:
            self.forget(held)
        else:
            self._settle(held, Requeue(held.claim))

    def on_death(self, child: Child, how: str) -> None:
        """The child has ended and everything it reported has been read: each of its tasks gets its end (W-35)."""
        child.is_dead = True
        fed, line = list(child.fed.values()), list(child.line)
        child.fed.clear()
        child.line.clear()
        suspect = None if child.is_killed or self.is_stopping else next_to_start(fed)
        for held in (*fed, *line):
            if held.stop is StopReason.LOST:
                self.forget(held)
            elif held.phase is not Phase.STARTED and held is not suspect:
                self._settle(held, Requeue(held.claim))
            elif held.stop is StopReason.TIMEOUT:
                self._timed_out(held)
            else:
                self._settle(held, self._crash_of(held, child, how))
        self._on_room()

    def _timed_out(self, held: HeldTask) -> None:
        log.warning("task stopped: it took longer than its timeout_ms", extra={"horsies": log_fields(held)})
        self._settle(held, finalize.of_timeout(held))

    def _settle(self, held: HeldTask, move: Move) -> None:
        if held.timer is not None:
            self._disarm(held)
        self._in_hand.keep_result(held, finalize.size_of(move))
        self._finalizer.put(held, move)

    def _replaced(self, held: HeldTask, move: Move) -> None:
        self._in_hand.replace_result(held, finalize.size_of(move))
        self.feed_on()

    def forget(self, held: HeldTask) -> None:
        """The task is not ours any more, so there is nothing to write; its room is free."""
        self._disarm(held)
        self._in_hand.drop(held)
        self.on_lost()
        self._on_room()

    # Stopping exactly one task

    def _watch_time(self, held: HeldTask) -> None:
        """The time limit runs from the moment when the task is first in its child (T-30)."""
        limit_ms = held.options.timeout_ms
        if limit_ms is not None and held.stop is None:
            self._disarm(held)
            start_timer = asyncio.get_running_loop().call_later
            held.timer = start_timer(limit_ms / 1000, self.stop, held, StopReason.TIMEOUT)

    def _disarm(self, held: HeldTask) -> None:
        if held.timer is not None:
            held.timer.cancel()
            held.timer = None

    def stop(self, held: HeldTask, reason: StopReason) -> None:
        """Stop the code of this task, if it is running; other tasks of the child are not affected unless the code does
        not end."""
        if held.stop is not None or held.phase is Phase.SETTLING:
            return
        held.stop = reason
        child = held.child
        if held.phase is Phase.CLAIMED:
            self._in_hand.waiting.remove(held)
            self.forget(held)
        elif held.phase is Phase.LINED and child is not None:
            child.line.remove(held)
            self.forget(held)
        elif held.phase in (Phase.FED, Phase.STARTED) and child is not None:
            child.write(pack(Kind.STOP, held.token, reason.value.encode()))
            grace = ASYNC_GRACE_S if held.is_async else SOFT_GRACE_S
            asyncio.get_running_loop().call_later(grace, self._escalate, child, held, signal.SIGTERM)

    def _escalate(self, child: Child, held: HeldTask, sig: signal.Signals) -> None:
        if child.is_dead or held.token not in child.fed:
            return
        log.warning("the task does not stop; its child gets %s", sig.name, extra={"horsies": log_fields(held)})
        self._children.kill(child, sig)
        if sig is not signal.SIGKILL:
            asyncio.get_running_loop().call_later(SOFT_GRACE_S, self._escalate, child, held, signal.SIGKILL)

    # Taking back

    def shut(self) -> None:
        """The worker's own heartbeats fail: tasks that have not begun return to the queue, and nothing more is started
        (R-101)."""
        if not self.is_shut:
            self.is_shut = True
            for child in self._children.children:
                self.take_back(child)

    def open(self) -> None:
        """The heartbeats succeed again."""
        if self.is_shut:
            self.is_shut = False
            self._on_room()

    def hand_back_surplus(self) -> None:
        """Of what was claimed ahead, hand back what would not be claimed now (W-25a)."""
        self._is_surprised = False
        for child in self._children.children:
            self._take_back_surplus(child)
        waiting = self._in_hand.waiting
        if self._limits.may_run_ahead:
            free = self.free_slots() + self._limits.prefetch
            self.hand_back(len(waiting) - self._kept(waiting, free, len(self._children.usable)))

    def hand_back(self, count: int) -> None:
        """So many of the tasks that are only claimed, those that came last, return to the queue."""
        for _ in range(count):
            held = self._in_hand.waiting.pop()
            self._settle(held, Requeue(held.claim))

    def free_slots(self) -> int:
        """How many tasks could begin at once, whatever they are."""
        return sum(max(0, child.slots(self._limits.concurrency) - child.load) for child in self._children.usable)

    def _kept(self, tasks: Iterable[HeldTask], free: int, children: int) -> int:
        return kept(
            [self.paces.of(held.row.task_name) for held in tasks],
            free=free, ahead=0, children=children, run_ahead_ms=self._limits.run_ahead_ms,
        )  # fmt: skip

    def _take_back_surplus(self, child: Child) -> None:
        slots = child.slots(self._limits.concurrency)
        if child.load > slots:
            self.take_back(child, self._kept([*child.fed.values(), *child.line], slots, 1))

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            asyncio.get_running_loop().call_later(WATCH_S, self._look_at_long_runs, monotonic() + WATCH_S)

    def _look_at_long_runs(self, planned: float) -> None:
        """Tasks that wait behind a task that turned out to be long, or for results to be written, return to the queue
        (W-25a, W-25b)."""
        self._is_watching = False
        self._children.read_outboxes()
        now = monotonic()
        self._late_s = max(now - planned, 0.9 * self._late_s)
        patience = patience_s(self._late_s)
        if self.is_held_up:
            self._watch()
            if now - self._held_up_at > patience:
                self._leave_to_others()
        for child in self._children.children:
            running = child.started_tasks()
            if child.load <= len(running):
                continue
            self._watch()
            if not running:
                # The child starts nothing, as when a signal has stopped it. Only its end frees the tasks inside it.
                if child.fed and now - min(held.since for held in child.fed.values()) > patience:
                    self.take_back(child, len(child.fed))
                continue
            is_full = len(running) >= self._limits.concurrency or child.has_sync
            longest = max(running, key=lambda held: now - (held.started or now))
            run_s = now - (longest.started or now)
            if is_full and run_s > patience:
                child.note_run(run_s * 1000, int(child.rss_mb * 1024))
                self._is_surprised |= self.paces.note(longest.row.task_name, run_s * 1000)
                self._set_ahead(child)
                self.take_back(child)
        if self._is_surprised:
            self.hand_back_surplus()

    def take_back(self, child: Child, stay: int = 0) -> None:
        """Take back what this child has not started, except for the first `stay` of its tasks: the supervisor's line at
        once, the child's when it confirms."""
        while child.line and len(child.fed) + len(child.line) > stay:
            held = child.line.pop()
            self._settle(held, Requeue(held.claim))
        self._ask_back(child, stay)

    def _ask_back(self, child: Child, stay: int) -> None:
        unstarted: list[int] = []
        for held in list(child.fed.values())[stay:]:
            if held.phase is Phase.FED and held.stop is None and not held.is_wanted_back:
                held.is_wanted_back = True
                unstarted.append(held.token)
        if unstarted:
            child.write(pack_tokens(Kind.TAKE_BACK, unstarted))
