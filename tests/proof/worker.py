"""A worker's memory, without processes and without a database: what it believes to hold, what its children are in,
and which ends wait to be written. It follows claimer, starter, dispatcher and finalizer of the real worker step by
step, uses their hand and their decisions, and leaves every statement to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from horsies.core.child.wire import Done
from horsies.core.models.recovery import WorkerRecoveryConfig
from horsies.core.sql import texts
from horsies.core.store.tasks import Claimant, Claimed, ClaimOrder, Seats
from horsies.core.tasks.moves import Move, Requeue
from horsies.core.worker import finalize
from horsies.core.worker.in_hand import HeldTask, InHand, Limits, Phase, StopReason
from horsies.core.worker.pace import Holding, orders
from tests.proof.rows import Budgets
from tests.proof.rows import Claimant as ModelClaimant
from tests.proof.values import Died, ErrorResult, Failed, Hold, Names, Report, Returned

HOST = "host"
MAX_AGE = timedelta(seconds=180)
SHORT = "one"  # the name of tasks that are known to be short
IN_LINE = 3  # so many tasks a child may have before it when its worker runs ahead


@dataclass(frozen=True)
class Terms:
    """What all workers of a story have in common."""

    cluster_cap: int | None = None
    prefetch: int = 0
    caps: tuple[tuple[str, int | None], ...] = (("a", None), ("b", None))
    recovery: WorkerRecoveryConfig = field(default_factory=lambda: WorkerRecoveryConfig(enabled=False))


@dataclass(eq=False)
class Child:
    """A child process: what waits for it here, and what it has been given; it runs one at a time."""

    pid: int
    line: list[HeldTask] = field(default_factory=list)
    fed: list[HeldTask] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"child-{self.pid}"

    @property
    def running(self) -> HeldTask | None:
        return next((held for held in self.fed if held.phase is Phase.STARTED), None)

    @property
    def is_due(self) -> bool:
        """Is it idle, and is there something for it to run?"""
        return self.running is None and bool(self.fed or self.line)


@dataclass(eq=False)
class Ending:
    """An end that waits to be written: the move that was decided on, and what has happened (None: nothing ran)."""

    held: HeldTask
    move: Move
    report: Report | None = None

    def __str__(self) -> str:
        return f"{type(self.move).__name__} {self.held.id}/{self.held.claim.claim_seq}"


@dataclass(frozen=True)
class Offer:
    """Places in children for what a claim brings; the first `free` of them are for tasks of any name."""

    places: list[Child]
    free: int

    @property
    def seats(self) -> Seats:
        children = list(dict.fromkeys(self.places))
        pids, names = [child.pid for child in children], [child.name for child in children]
        return Seats([1 + children.index(place) for place in self.places], pids, names, HOST, self.free, texts([SHORT]))


@dataclass(frozen=True)
class Shape:
    """What one worker is told at its start."""

    processes: int
    queues: tuple[str, ...]
    max_claim_batch: int
    max_claim_per_worker: int
    lease: int
    ahead: int


class Worker:
    def __init__(self, worker_id: str, terms: Terms, shape: Shape, first_pid: int) -> None:
        self.id = worker_id
        self.terms = terms
        self.shape = shape
        self.who = Claimant(worker_id, timedelta(seconds=shape.lease), terms.recovery.enabled)
        caps = dict(terms.caps)
        self._queues = [(name, caps[name]) for name in shape.queues]
        self._is_uncapped = terms.cluster_cap is None and all(cap is None for _, cap in self._queues)
        self._limits = Limits(
            queues=self._queues,
            cluster_cap=terms.cluster_cap,
            prefetch=terms.prefetch,
            max_claim_batch=shape.max_claim_batch,
            max_claim_per_worker=shape.max_claim_per_worker,
            run_ahead_ms=20,
            concurrency=1,
        )
        self.hand = InHand()
        self.children = [Child(first_pid + number) for number in range(shape.processes)]
        self.endings: list[Ending] = []
        self.is_unsure = False

    def hold(self, held: HeldTask) -> Hold:
        return Hold(self.id, held.id, held.claim.claim_seq)

    def known(self) -> set[Hold]:
        inside = [held for child in self.children for held in (*child.fed, *child.line)]
        return {self.hold(held) for held in (*self.hand, *inside, *(ending.held for ending in self.endings))}

    @property
    def results(self) -> list[HeldTask]:
        """What has run and waits to be written."""
        return [ending.held for ending in self.endings if ending.report is not None]

    # Claiming

    @property
    def model(self) -> ModelClaimant:
        return ModelClaimant(self.id, float(self.shape.lease), self.who.enrolled)

    def order(self) -> ClaimOrder | None:
        """What the real worker would ask for now."""
        ahead = self.shape.ahead if self._is_uncapped else 0
        waiting = len(self.hand.waiting)
        now = Holding(len(self.children), len(self.hand), waiting, idle_children=0, ahead=ahead)
        return next(iter(orders(self._limits, now, [])), None)

    def budgets(self) -> Budgets:
        """The same by the words of W-24 and W-25, and W-25a for queues without any cap."""
        slots = len(self.children)
        claimed = self.hand.count(Phase.CLAIMED, Phase.STARTING)
        is_capped = not self._is_uncapped or self.shape.max_claim_per_worker > 0
        ahead = 0 if is_capped else self.shape.ahead
        effective = self.shape.max_claim_per_worker or slots + self.terms.prefetch
        return Budgets(
            queues=self._queues,
            local=slots + self.terms.prefetch - len(self.hand) + ahead,
            per_worker=effective - claimed + ahead,
            batch=self.shape.max_claim_batch,
            cluster_cap=self.terms.cluster_cap,
            is_hard=self.terms.prefetch == 0,
        )

    def offer(self) -> Offer | None:
        """As `Starter.offer`: the places for tasks that the claim makes RUNNING, the emptiest child first (W-21b)."""
        if not self._is_uncapped or self.hand.waiting:
            return None
        loads = {child: len(child.fed) + len(child.line) for child in self.children}
        levels = range(IN_LINE if self.shape.ahead else 1)
        places = [child for level in levels for child in self.children if loads[child] <= level]
        return Offer(places, sum(1 for load in loads.values() if load == 0)) if places else None

    def take(self, rows: Iterable[Claimed], offer: Offer | None = None) -> None:
        """As `Claimer._take`, and `Starter.take_seats`."""
        for row in rows:
            older = self.hand.take(row, is_async=False)
            if older is not None:
                self.lose(older)
            held = self.hand.held[row.id]
            if offer is not None and row.child is not None and held.row is row:
                held.phase = Phase.LINED
                list(dict.fromkeys(offer.places))[row.child - 1].line.append(held)

    # Starting

    def place(self, most: int) -> list[tuple[HeldTask, Child]]:
        """As `Starter._place`: the next that wait, each with a child that has room."""
        batch: list[tuple[HeldTask, Child]] = []
        loads = {child: len(child.fed) + len(child.line) for child in self.children}
        while self.hand.waiting and len(batch) < most:
            child = min(self.children, key=lambda one: loads[one])
            if loads[child] >= (IN_LINE if self.shape.ahead else 1):
                break
            loads[child] += 1
            held = self.hand.waiting.popleft()
            held.phase = Phase.STARTING
            batch.append((held, child))
        return batch

    def started(self, batch: Iterable[tuple[HeldTask, Child]], ids: set[str]) -> None:
        """As `Starter._start`: those that are RUNNING get in line, the others are past their deadline or lost."""
        for held, child in batch:
            if held.id in ids:
                held.phase = Phase.LINED
                child.line.append(held)
            elif held.row.has_deadline:
                self._put(held, finalize.of_deadline(held, self.id))
            else:
                self.hand.drop(held)

    def unconfirmed(self, batch: Iterable[tuple[HeldTask, Child]]) -> None:
        """As `Starter._unconfirmed` (L-27)."""
        for held, _ in batch:
            self._put(held, Requeue(held.claim))

    # Children

    def begin(self, child: Child) -> HeldTask | None:
        """The child calls the function of its next task; it has room for one more behind it."""
        while child.line and len(child.fed) < 2:
            held = child.line.pop(0)
            held.phase = Phase.FED
            child.fed.append(held)
        if child.running is not None or not child.fed:
            return None
        child.fed[0].phase = Phase.STARTED
        return child.fed[0]

    def done(self, child: Child, done: Done) -> None:
        """As `Dispatcher._done`."""
        held = child.running
        assert held is not None
        child.fed.remove(held)
        if held.stop is StopReason.LOST:
            self.hand.drop(held)
            return
        report = Returned(done.result) if done.ok else Failed(done.error_code, done.result, done.error_message)
        self._put(held, finalize.of_report(held, done), report)

    def timed_out(self, child: Child) -> None:
        """As `Dispatcher._timed_out`."""
        held = child.running
        assert held is not None
        child.fed.remove(held)
        if held.stop is StopReason.LOST:
            self.hand.drop(held)
            return
        report = Failed("TASK_TIMEOUT", ErrorResult("TASK_TIMEOUT"), Names((held.row.task_name,)))
        self._put(held, finalize.of_timeout(held), report)

    def dies(self, child: Child, *, is_forced: bool) -> None:
        """As `Dispatcher.on_death`; `is_forced`: the worker was told to stop at once (W-52)."""
        for held in (*child.fed, *child.line):
            if held.stop is StopReason.LOST:
                self.hand.drop(held)
            elif held.phase is not Phase.STARTED:
                self._put(held, Requeue(held.claim))
            elif is_forced:
                delay = self.terms.recovery.recovery_delay.total_seconds() if self.terms.recovery.enabled else None
                move = finalize.of_forced_shutdown(held, self.id, HOST, child.pid, self.terms.recovery)
                self._put(held, move, Died(self.id, HOST, child.pid, delay))
            else:
                move = finalize.of_crash(held, self.id, HOST, child.pid, "it was killed by SIGKILL")
                self._put(held, move, Died(self.id, HOST, child.pid))
        child.fed.clear()
        child.line.clear()
        child.pid += 100

    def take_back(self, child: Child) -> None:
        """As `Dispatcher.take_back`, with the child's consent: everything that it has not begun."""
        for held in [*child.line, *(held for held in child.fed if held.phase is Phase.FED and held.stop is None)]:
            self._put(held, Requeue(held.claim))
        child.line.clear()
        child.fed = [held for held in child.fed if held.phase is not Phase.SETTLING]

    def hand_back(self) -> None:
        """As `Starter.hand_back`: what is only claimed."""
        while self.hand.waiting:
            held = self.hand.waiting.popleft()
            self._put(held, Requeue(held.claim))

    def lose(self, held: HeldTask) -> None:
        """As `Dispatcher.stop` for a task that is not this worker's any more; running code ends later."""
        if held.stop is not None or held.phase is Phase.SETTLING:
            return
        held.stop = StopReason.LOST
        if held.phase is Phase.CLAIMED:
            self.hand.waiting.remove(held)
            self.hand.drop(held)
        elif held.phase is Phase.LINED:
            for child in self.children:
                child.line = [other for other in child.line if other is not held]
            self.hand.drop(held)

    # Ends

    def _put(self, held: HeldTask, move: Move, report: Report | None = None) -> None:
        held.phase = Phase.SETTLING
        self.endings.append(Ending(held, move, report))

    def settled(self, batch: Sequence[Ending], moved: set[str]) -> None:
        """They stand in the database, or were too late; then `Claimer.unknown` may have some."""
        for ending in batch:
            self.endings.remove(ending)
            self.hand.drop(ending.held)
            self.is_unsure |= ending.held.id not in moved
