"""What a worker knows about its own silence: whether the database answers, and until when its code may continue
(R-101).

`Pulse` records every heartbeat that is sent; `Fence` adds the times at which others may act. `silence.py` decides, and
`guard.py` acts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.worker import silence
from horsies.core.worker.silence import Terms
from horsies.core.worker.wire import Kind, pack

if TYPE_CHECKING:
    from horsies.core.worker.pool import Child

# Seconds on a clock that runs while the machine sleeps and that nobody sets. All processes of a machine read the same.
clock: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Pulse:
    """Whether the database answers this worker, and since when (R-23). A new worker has not lost it yet."""

    def __init__(self, quiet_s: float, clock: Callable[[], float] = clock) -> None:
        self._quiet_s = quiet_s
        self._clock = clock
        self._since: float | None = -math.inf  # it answers so long without a break; None: it does not
        self.is_failing = False  # the last sign of life failed: nothing is started until one succeeds

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
        return silence.may_judge(self._clock(), self._since, self._quiet_s)


class Fence:
    """The times that count for the tasks of this worker. `refreshed`: when its own last heartbeat was sent."""

    def __init__(self, pulse: Pulse, terms: Terms, clock: Callable[[], float] = clock) -> None:
        self.pulse = pulse
        self.terms = terms
        self.clock = clock
        self.refreshed = clock()
        self._fine_s = terms.shortest_s / 20  # a word that moves the end by less is not worth sending

    @classmethod
    def of(cls, recovery: RecoveryConfig, sweeping: WorkerRecoveryConfig) -> Fence:
        """For a worker with these settings."""
        return cls(Pulse(silence.quiet_s(recovery, sweeping)), Terms.of(recovery, sweeping))

    @property
    def tick_s(self) -> float:
        """How often to check: several times within the last quarter of the shortest threshold."""
        return max(0.02, min(0.25, self.terms.shortest_s / 16))

    def is_late(self, sign: float) -> bool:
        """Whether it is too late to let code run with a heartbeat that was sent at that time, as after a pause."""
        return self.clock() >= silence.end_of_time(sign, self.refreshed, self.terms, is_failing=True)

    def is_over(self, now: float, sign: float) -> bool:
        """Whether code that runs with this heartbeat must end now. While heartbeats fail, it ends one check early
        rather than late."""
        is_failing = self.pulse.is_failing
        soon = now + self.tick_s if is_failing else now
        return soon >= silence.end_of_time(sign, self.refreshed, self.terms, is_failing=is_failing)

    def tell(self, child: Child, sign: float, now: float | None = None) -> None:
        """Tell a child until when it may continue without another message, if that has changed. A newly sent task has a
        fresh heartbeat and needs no check."""
        at = -math.inf if now is None else now
        until = silence.word(at, sign, self.refreshed, self.terms, is_failing=self.pulse.is_failing)
        if abs(until - child.until) > self._fine_s:
            child.until = until
            child.write(pack(Kind.WORD, int(until * 1e9)))
