"""Self-fencing (R-101): no code runs here when others may take it over, and others are judged only while the database
answers (R-12, R-23, R-44).

`SelfFence` acts: its `check` is called at every tick, before every heartbeat and after each reply to one. After a pause
it runs before everything else, except for what the sockets bring; so waiting tasks are checked once more before they
are sent to a child. `Fence` knows until when the tasks of this worker may run, and `Pulse` whether the database
answers. The functions below them decide, without I/O. Times are from one clock that also runs while the machine sleeps.
A heartbeat counts from the moment it was sent: the database stored it later than that, so this count is never too late.
`liveness.py` sends the heartbeats.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from horsies.core.child.wire import Kind, clock, pack
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.worker.in_hand import HeldTask, StopReason, log_fields

if TYPE_CHECKING:
    from horsies.core.worker.children import Child, Children
    from horsies.core.worker.dispatch import Dispatcher

log = logging.getLogger("horsies.worker")

JUMP = 1 / 8  # of the quiet time: a clock that moves by less changes no judgement
LONGEST_STEP_S = 5.0
EARLY = 0.75  # of the way to the instant at which others could take over
LONGEST_WAIT_S = 10.0
QUIET_INTERVALS = 2


class SelfFence:
    """Opens and closes the way to the children, tells them until when they may continue, and kills them when their time
    is over."""

    def __init__(self, fence: Fence, children: Children, dispatcher: Dispatcher) -> None:
        self._fence = fence
        self._children = children
        self._dispatcher = dispatcher

    def check(self) -> None:
        if self._fence.pulse.is_failing:
            self._dispatcher.shut()
        else:
            self._dispatcher.open()
        now = self._fence.clock()
        for child in self._children.children:
            held = _most_silent(child)
            if held is None or child.is_killed:
                continue
            if self._fence.is_over(now, held.sign):
                self._kill(child, held, now - held.sign)
            else:
                self._fence.tell(child, held.sign, now)

    def _kill(self, child: Child, held: HeldTask, silence_s: float) -> None:
        if self._fence.pulse.is_failing:
            why = f"the database confirmed no heartbeat for {silence_s:.1f} s, and others may take the task over soon"
        else:
            why = f"it has been silent and idle for {silence_s:.1f} s"
        log.error("child process %s is killed: %s", child.name, why, extra={"horsies": log_fields(held)})
        self._children.kill(child, why=why)


def _most_silent(child: Child) -> HeldTask | None:
    """The task inside the child whose last heartbeat is the oldest. A task that is no longer ours has been told to end,
    and has its own time for that."""
    ours = [held for held in child.fed.values() if held.stop is not StopReason.LOST]
    return min(ours, key=lambda held: held.sign, default=None)


class Fence:
    """The times that count for the tasks of this worker. `refreshed`: when its own last heartbeat was sent."""

    def __init__(self, pulse: Pulse, terms: Terms, clock: Callable[[], float] = clock) -> None:
        self.pulse = pulse
        self.terms = terms
        self.clock = clock
        self.refreshed = clock()
        self._fine_s = terms.shortest_s / 20  # a message that moves the end by less is not worth sending

    @classmethod
    def of(cls, recovery: RecoveryConfig, sweeping: WorkerRecoveryConfig) -> Fence:
        """For a worker with these settings."""
        return cls(Pulse(quiet_s(recovery, sweeping)), Terms.of(recovery, sweeping))

    @property
    def tick_s(self) -> float:
        """How often to check: several times within the last quarter of the shortest threshold."""
        return max(0.02, min(0.25, self.terms.shortest_s / 16))

    @property
    def idle_tick_s(self) -> float:
        """The same while there are no tasks. One that comes meanwhile has a fresh heartbeat."""
        return max(self.tick_s, min(5.0, self.terms.shortest_s / 16))

    def is_late(self, sign: float) -> bool:
        """Whether it is too late to let code run with a heartbeat that was sent at that time, as after a pause."""
        return self.clock() >= end_of_time(sign, self.refreshed, self.terms, is_failing=True)

    def is_over(self, now: float, sign: float) -> bool:
        """Whether code that runs with this heartbeat must end now. While heartbeats fail, it ends one check early
        rather than late."""
        is_failing = self.pulse.is_failing
        soon = now + self.tick_s if is_failing else now
        return soon >= end_of_time(sign, self.refreshed, self.terms, is_failing=is_failing)

    def tell(self, child: Child, sign: float, now: float | None = None) -> None:
        """Tell a child until when it may continue without another message, if that has changed. A newly sent task has a
        fresh heartbeat and needs no check."""
        at = -math.inf if now is None else now
        until = may_run_until(at, sign, self.refreshed, self.terms, is_failing=self.pulse.is_failing)
        if abs(until - child.may_run_until) > self._fine_s:
            child.may_run_until = until
            child.write(pack(Kind.MAY_RUN_UNTIL, int(until * 1e9)))


class Pulse:
    """Whether the database answers this worker, and since when (R-23). A new worker has not lost it yet."""

    def __init__(self, quiet_s: float, clock: Callable[[], float] = clock) -> None:
        self._quiet_s = quiet_s
        self._clock = clock
        self._since: float | None = -math.inf  # since when it answers without a break; None: it does not answer
        self._ahead: Ahead | None = None  # of the server's clock, at the last look
        self.is_failing = False  # the last heartbeat failed, and nothing is started until one succeeds

    def answered(self) -> None:
        """A heartbeat has succeeded."""
        self.is_failing = False
        self.back()

    def failed(self) -> None:
        """A heartbeat has failed."""
        self.is_failing = True
        self.lost()

    def lost(self) -> None:
        """A connection to the database has been lost, so others may have lost theirs."""
        self._since = None

    def back(self) -> None:
        """The connection is there again."""
        if self._since is None and not self.is_failing:
            self._since = self._clock()

    def may_judge(self) -> bool:
        """Whether others may be judged by their silence. The database must have answered for two heartbeat
        intervals."""
        return may_judge(self._clock(), self._since, self._quiet_s)

    async def may_still_judge(self, server_time: Callable[[], Awaitable[float]]) -> bool:
        """The same, with a look at the server's clock."""
        sent = self._clock()
        self.saw_time(await server_time(), sent)
        return self.may_judge()

    def server_time(self) -> float | None:
        """About what the server's clock says now, in seconds since 1970; None before it was seen."""
        return None if self._ahead is None else self._clock() + self._ahead.least

    def saw_time(self, server_s: float, sent: float) -> None:
        """The server's clock, in a reply to what was sent at `sent`. If it was set, all the others seem silent for as
        long as it went forward, until they have written something: as after an outage, they get time for that."""
        now = self._clock()
        ahead, before = Ahead(server_s - now, server_s - sent), self._ahead
        self._ahead = ahead
        step_s = 0.0 if before is None else step(before, ahead)
        if abs(step_s) > min(LONGEST_STEP_S, JUMP * self._quiet_s):
            log.warning(
                "the clock of the database server was set by %+.1f s; nobody is judged by silence for the next %g s",
                step_s, self._quiet_s,
            )  # fmt: skip
            self._since = None if self._since is None else now


class Terms(NamedTuple):
    """The silence after which others may declare a running task of this worker dead: its own settings (R-63)."""

    running_s: float  # of the task
    sweep_s: float | None = None  # of the worker, if its tasks are enrolled in worker recovery

    @classmethod
    def of(cls, recovery: RecoveryConfig, sweeping: WorkerRecoveryConfig) -> Terms:
        running_ms = max(recovery.running_stale_threshold_ms, 2 * recovery.runner_heartbeat_interval_ms)
        sweep = max(sweeping.sweep_threshold, 2 * sweeping.heartbeat_interval).total_seconds()
        return cls(running_ms / 1000, sweep if sweeping.enabled else None)

    @property
    def shortest_s(self) -> float:
        return self.running_s if self.sweep_s is None else min(self.running_s, self.sweep_s)

    @property
    def patience_s(self) -> float:
        """A heartbeat that is not confirmed within this time has failed. It is at most a quarter of the threshold: a
        heartbeat that is sent half-way, as the longest interval allows, is known to have failed when it is time to act.
        """
        return min(LONGEST_WAIT_S, (1 - EARLY) * self.shortest_s)


def end_of_time(sign: float, refreshed: float, terms: Terms, *, is_failing: bool) -> float:
    """When the code of a started task must end here. `sign`: its last heartbeat; `refreshed`: that of the worker.

    While heartbeats fail, this is three quarters of the way to the first moment at which others could declare the task
    dead. While the database answers, only a silent and idle child comes this far; it has until that moment itself.
    """
    share = EARLY if is_failing else 1.0
    until = sign + share * terms.running_s
    return until if terms.sweep_s is None else min(until, refreshed + share * terms.sweep_s)


def may_run_until(now: float, sign: float, refreshed: float, terms: Terms, *, is_failing: bool) -> float:
    """Until when a child may continue without another message from its parent, which may be stopped at any moment."""
    until = end_of_time(sign, refreshed, terms, is_failing=True)
    if is_failing or now < until:
        return until
    return end_of_time(
        sign, refreshed, terms, is_failing=False
    )  # the parent exists, and sees that the child is not alive


class Ahead(NamedTuple):
    """How far the server's clock is ahead of ours. It was read between a question and its answer, so there are two
    limits."""

    least: float
    most: float


def step(before: Ahead, after: Ahead) -> float:
    """By how much the server's clock was certainly set between two looks; 0.0 if both may be explained without that."""
    return max(0.0, after.least - before.most) or min(0.0, after.most - before.least)


def may_judge(now: float, answering_since: float | None, quiet_s: float) -> bool:
    """Silence of the database is not silence of a worker: the database must have answered for a while (R-23)."""
    return answering_since is not None and now - answering_since >= quiet_s


def quiet_s(recovery: RecoveryConfig, sweeping: WorkerRecoveryConfig) -> float:
    """Two heartbeat intervals, of those that are in use."""
    longest = max(recovery.runner_heartbeat_interval_ms, recovery.claimer_heartbeat_interval_ms) / 1000
    if sweeping.enabled:
        longest = max(longest, sweeping.heartbeat_interval.total_seconds())
    return QUIET_INTERVALS * longest
