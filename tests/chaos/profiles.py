"""Workers configured differently: what the app of a worker is told, and the options of its command line. Small
thresholds make many recoveries in a short time; the default ones show that evidence needs none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SHORT_DELAY_S = 0.5
BEAT_MS = 1_000
STALE_MS = 3_000  # a machine that is busy with all this may be silent for a second or two
_QUICK = {
    "claimed_stale_threshold_ms": STALE_MS,
    "running_stale_threshold_ms": STALE_MS,
    "finalizing_stale_threshold_ms": STALE_MS,
    "check_interval_ms": 1_000,
    "crashed_worker_recovery_grace_ms": 1_000,
    "runner_heartbeat_interval_ms": BEAT_MS,
    "claimer_heartbeat_interval_ms": BEAT_MS,
    "worker_state_snapshot_interval_ms": 5_000,
}
_SWEEPING = {
    "heartbeat_interval": BEAT_MS / 1000,
    "sweep_interval": 1.0,
    "sweep_threshold": STALE_MS / 1000,
    "recovery_delay": SHORT_DELAY_S,
    "resilient_sweep_threshold_multiplier": 2,
}
# Also who is not enrolled may be the one who finds an enrolled worker dead.
_NOT_SWEEPING = {"enabled": False, "recovery_delay": SHORT_DELAY_S}
_BLIND = {"use_liveness_evidence": False}


@dataclass(frozen=True)
class Profile:
    """`recovery`, `worker_recovery` and `more` are fields of AppConfig."""

    name: str
    recovery: dict[str, Any] = field(default_factory=dict)
    worker_recovery: dict[str, Any] = field(default_factory=lambda: _NOT_SWEEPING)
    more: dict[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()

    def settings(self) -> dict[str, Any]:
        """For the app, as JSON."""
        return {"recovery": self.recovery, "worker_recovery": self.worker_recovery, **self.more}


def _strict(*options: str) -> tuple[str, ...]:
    return ("--run-ahead-ms", "0", *options)


QUICK_ENROLLED = Profile("quick, enrolled, runs ahead", _QUICK, _SWEEPING)
QUICK_ENROLLED_STRICT = Profile("quick, enrolled, strict", _QUICK, _SWEEPING, options=_strict())
QUICK_PLAIN_BLIND = Profile("quick, not enrolled, strict, no evidence", _QUICK | _BLIND, options=_strict())
QUICK_PLAIN_MANY = Profile("quick, not enrolled, four async", _QUICK, options=("--concurrency", "4"))
QUICK_PREFETCH = Profile(
    "quick, not enrolled, prefetches", _QUICK, more={"prefetch_buffer": 3, "claim_lease_ms": 4_000}, options=_strict()
)
USUAL_MANY = Profile("default thresholds, not enrolled, four async", options=("--concurrency", "4"))
USUAL_PLAIN = Profile("default thresholds, not enrolled, runs ahead")
USUAL_ENROLLED = Profile(
    "default thresholds, enrolled", worker_recovery={"enabled": True, "recovery_delay": SHORT_DELAY_S}
)

# For each place of a worker, what may be started there. With evidence, at least two look for dead processes.
WITH_EVIDENCE = (
    (QUICK_ENROLLED, QUICK_ENROLLED_STRICT),
    (QUICK_PLAIN_BLIND, QUICK_PLAIN_MANY, QUICK_PREFETCH),
    (USUAL_MANY, USUAL_PLAIN, USUAL_ENROLLED),
)
_BLIND_ENROLLED = Profile("quick, enrolled, runs ahead, no evidence", _QUICK | _BLIND, _SWEEPING)
_BLIND_MANY = Profile("quick, not enrolled, four async, no evidence", _QUICK | _BLIND, options=("--concurrency", "4"))
WITHOUT_EVIDENCE = (
    (_BLIND_ENROLLED,),
    (QUICK_PLAIN_BLIND, _BLIND_MANY),
    (_BLIND_ENROLLED, _BLIND_MANY),
)
