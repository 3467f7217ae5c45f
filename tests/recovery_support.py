"""Settings and stored options for tests of recovery."""

from __future__ import annotations

from typing import Any

from horsies.core.models.recovery import RecoveryConfig
from horsies.core.models.sending import RetryPolicy, TaskOptions

LONG_AGO = "2020-01-01"

# The shortest thresholds that one-second heartbeats allow.
HASTY: dict[str, Any] = {
    "claimed_stale_threshold_ms": 2_000,
    "running_stale_threshold_ms": 2_000,
    "finalizing_stale_threshold_ms": 2_000,
    "claimer_heartbeat_interval_ms": 1_000,
    "runner_heartbeat_interval_ms": 1_000,
}


def hasty(**settings: Any) -> RecoveryConfig:
    return RecoveryConfig(**{**HASTY, **settings})


def options_with(*codes: str) -> str | None:
    """Stored options of a task that is retried three times, a minute later, after these errors."""
    policy = RetryPolicy.fixed([60, 60, 60], auto_retry_for=list(codes), jitter=False)
    return TaskOptions(retry_policy=policy).to_json()
