"""How long code may continue, and whether others may be judged, when the database does not answer (R-12, R-23, R-44,
R-101). Pure.

Times are from one clock that also runs while the machine sleeps, and are passed in. A heartbeat counts from the moment
it was sent: the database stored it later than that, so this count is never too late.
"""

from __future__ import annotations

from typing import NamedTuple

from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig

EARLY = 0.75  # of the way to the instant at which others could take over
LONGEST_WAIT_S = 10.0
QUIET_INTERVALS = 2


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


def word(now: float, sign: float, refreshed: float, terms: Terms, *, is_failing: bool) -> float:
    """Until when a child may continue without another message from its parent, which may be stopped at any moment."""
    until = end_of_time(sign, refreshed, terms, is_failing=True)
    if is_failing or now < until:
        return until
    return end_of_time(sign, refreshed, terms, is_failing=False)  # not vouched for, and the parent is there to see it


def may_judge(now: float, answering_since: float | None, quiet_s: float) -> bool:
    """Silence of the database is not silence of a worker: the database must have answered for a while (R-23)."""
    return answering_since is not None and now - answering_since >= quiet_s


def quiet_s(recovery: RecoveryConfig, sweeping: WorkerRecoveryConfig) -> float:
    """Two heartbeat intervals, of those that are in use."""
    longest = max(recovery.runner_heartbeat_interval_ms, recovery.claimer_heartbeat_interval_ms) / 1000
    if sweeping.enabled:
        longest = max(longest, sweeping.heartbeat_interval.total_seconds())
    return QUIET_INTERVALS * longest
