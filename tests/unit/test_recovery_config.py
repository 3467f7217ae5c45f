"""RecoveryConfig and WorkerRecoveryConfig (R-01 to R-09, R-58, T-74)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from horsies import INFRASTRUCTURE_RESILIENT_FLAG, MultipleValidationErrors, RecoveryConfig, WorkerRecoveryConfig
from horsies.core.errors import ConfigurationError

DEFAULTS = {
    "auto_requeue_stale_claimed": True,
    "claimed_stale_threshold_ms": 120_000,
    "auto_fail_stale_running": True,
    "running_stale_threshold_ms": 300_000,
    "finalizing_stale_threshold_ms": 300_000,
    "crashed_worker_recovery_grace_ms": 10_000,
    "check_interval_ms": 30_000,
    "runner_heartbeat_interval_ms": 30_000,
    "claimer_heartbeat_interval_ms": 30_000,
    "heartbeat_retention_hours": 24,
    "worker_state_retention_hours": 168,
    "terminal_record_retention_hours": 720,
    "worker_state_snapshot_interval_ms": 30_000,
    "use_liveness_evidence": True,
}
# field, smallest, largest; heartbeats are 1 s so that only the range of the field decides
RANGES = [
    ("claimed_stale_threshold_ms", 2_000, 3_600_000),
    ("running_stale_threshold_ms", 2_000, 7_200_000),
    ("finalizing_stale_threshold_ms", 2_000, 7_200_000),
    ("crashed_worker_recovery_grace_ms", 0, 3_600_000),
    ("check_interval_ms", 1_000, 600_000),
    ("worker_state_snapshot_interval_ms", 1_000, 300_000),
    ("heartbeat_retention_hours", 1, 8_760),
    ("worker_state_retention_hours", 1, 8_760),
    ("terminal_record_retention_hours", 1, 43_800),
]


def build(**fields: Any) -> RecoveryConfig:
    return RecoveryConfig(**{"runner_heartbeat_interval_ms": 1_000, "claimer_heartbeat_interval_ms": 1_000, **fields})


def test_r01_defaults() -> None:
    assert RecoveryConfig().model_dump() == DEFAULTS


@pytest.mark.parametrize(("field", "low", "high"), RANGES)
def test_r01_ranges(field: str, low: int, high: int) -> None:
    assert getattr(build(**{field: low}), field) == low
    assert getattr(build(**{field: high}), field) == high
    for wrong in (low - 1, high + 1):
        with pytest.raises(ValueError, match="HRS-204"):
            build(**{field: wrong})


@pytest.mark.parametrize("field", ["runner_heartbeat_interval_ms", "claimer_heartbeat_interval_ms"])
def test_r01_ranges_of_heartbeats(field: str) -> None:
    for wrong in (999, 120_001):
        with pytest.raises(ValueError, match="HRS-204"):
            RecoveryConfig(**{field: wrong})


@pytest.mark.parametrize("field", [name for name, _, _ in RANGES if name.endswith("_hours")])
def test_r01_none_keeps_records(field: str) -> None:
    assert getattr(build(**{field: None}), field) is None


@pytest.mark.parametrize(
    ("threshold", "interval"),
    [
        ("claimed_stale_threshold_ms", "claimer_heartbeat_interval_ms"),
        ("running_stale_threshold_ms", "runner_heartbeat_interval_ms"),
        ("finalizing_stale_threshold_ms", "runner_heartbeat_interval_ms"),
    ],
)
def test_r02_thresholds_are_at_least_two_heartbeats(threshold: str, interval: str) -> None:
    assert RecoveryConfig(**{interval: 30_000, threshold: 60_000})
    for age in (59_999, 30_000):
        with pytest.raises(ConfigurationError, match="HRS-204"):
            RecoveryConfig(**{interval: 30_000, threshold: age})


def test_r02_all_failures_together() -> None:
    with pytest.raises(MultipleValidationErrors) as raised:
        RecoveryConfig(claimed_stale_threshold_ms=1_000, running_stale_threshold_ms=1_000, check_interval_ms=1)
    messages = [error.message for error in raised.value.report.errors]
    assert len(messages) == 3
    assert all(error.code == "HRS-204" for error in raised.value.report.errors)


def test_t74_an_invalid_recovery_config_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        RecoveryConfig(check_interval_ms=0)


def test_r05_defaults() -> None:
    plain = WorkerRecoveryConfig()
    assert plain.enabled is False
    assert plain.heartbeat_interval == timedelta(seconds=30) and plain.sweep_interval == timedelta(seconds=60)
    assert plain.sweep_threshold == timedelta(minutes=5) and plain.recovery_delay == timedelta(seconds=30)
    assert plain.resilient_sweep_threshold_multiplier == 3
    assert plain.resilient_job_flags == [INFRASTRUCTURE_RESILIENT_FLAG] == ["infrastructure_resilient"]
    assert plain.max_recoveries_per_task == 5


def test_r05_a_number_means_seconds() -> None:
    assert WorkerRecoveryConfig(sweep_interval=1.5).sweep_interval == timedelta(seconds=1.5)  # type: ignore[arg-type]


def test_r06_setting_any_value_enables() -> None:
    assert WorkerRecoveryConfig(sweep_interval=timedelta(seconds=5)).enabled
    assert WorkerRecoveryConfig(resilient_job_flags=[]).enabled
    assert WorkerRecoveryConfig(max_recoveries_per_task=None).enabled
    assert not WorkerRecoveryConfig(enabled=False, sweep_interval=timedelta(seconds=5)).enabled


@pytest.mark.parametrize(
    ("method", "field", "value"),
    [
        ("with_heartbeat_interval", "heartbeat_interval", timedelta(seconds=10)),
        ("with_sweep_interval", "sweep_interval", timedelta(seconds=7)),
        ("with_sweep_threshold", "sweep_threshold", timedelta(minutes=9)),
        ("with_recovery_delay", "recovery_delay", timedelta(0)),
        ("with_resilient_sweep_threshold_multiplier", "resilient_sweep_threshold_multiplier", 4),
        ("with_resilient_job_flags", "resilient_job_flags", ["mine"]),
        ("with_max_recoveries_per_task", "max_recoveries_per_task", None),
    ],
)
def test_r06_fluent_copies_enable_and_leave_the_original_alone(method: str, field: str, value: Any) -> None:
    plain = WorkerRecoveryConfig()
    copy = getattr(plain, method)(value)
    assert (getattr(copy, field), copy.enabled) == (value, True)
    assert plain == WorkerRecoveryConfig() and not plain.enabled


def test_r06_the_last_call_wins() -> None:
    plain = WorkerRecoveryConfig()
    assert not plain.with_sweep_interval(timedelta(seconds=7)).with_enabled(False).enabled
    assert plain.with_enabled(False).with_sweep_interval(timedelta(seconds=7)).enabled
    with pytest.raises(ValueError):
        plain.enabled = True  # type: ignore[misc]


@pytest.mark.parametrize(
    "fields",
    [
        {"heartbeat_interval": timedelta(0)},
        {"sweep_interval": timedelta(seconds=-1)},
        {"sweep_threshold": timedelta(0)},
        {"recovery_delay": timedelta(seconds=-1)},
        {"heartbeat_interval": timedelta(seconds=30), "sweep_threshold": timedelta(seconds=59)},
        {"resilient_sweep_threshold_multiplier": 0},
        {"resilient_sweep_threshold_multiplier": 1.5},
        {"resilient_job_flags": [""]},
        {"max_recoveries_per_task": 0},
    ],
)
def test_r08_validation(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="HRS-204"):
        WorkerRecoveryConfig(**fields)


def test_r08_equality_is_valid_and_an_empty_list_turns_resilience_off() -> None:
    exact = WorkerRecoveryConfig(heartbeat_interval=timedelta(seconds=30), sweep_threshold=timedelta(seconds=60))
    assert exact.enabled
    assert WorkerRecoveryConfig(resilient_job_flags=[]).resilient_job_flags == []
