"""RecoveryConfig and WorkerRecoveryConfig by themselves, in an app and on a worker (R-01 to R-09, R-58, T-74)."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from horsies import (
    INFRASTRUCTURE_RESILIENT_FLAG,
    AppConfig,
    Horsies,
    MultipleValidationErrors,
    PostgresConfig,
    RecoveryConfig,
    WorkerRecoveryConfig,
)
from horsies.core.errors import ConfigurationError
from horsies.core.worker.config import Plan, WorkerConfig
from tests.each import each

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
    "rollup_retention_hours": 168,
    "audit_retention_hours": 2_160,
    "worker_state_snapshot_interval_ms": 30_000,
    "unknown_task_grace_ms": 600_000,
    "use_liveness_evidence": True,
}
# field, smallest, largest; heartbeats are 1 s so that only the range of the field decides
RANGES = [
    ("unknown_task_grace_ms", 0, 604_800_000),
    ("crashed_worker_recovery_grace_ms", 0, 3_600_000),
    ("check_interval_ms", 1_000, 600_000),
    ("worker_state_snapshot_interval_ms", 1_000, 300_000),
    ("heartbeat_retention_hours", 1, 8_760),
    ("worker_state_retention_hours", 1, 8_760),
    ("terminal_record_retention_hours", 1, 43_800),
    ("rollup_retention_hours", 1, 43_800),
    ("audit_retention_hours", 1, 43_800),
]
# Their smallest value, 1 000, is never reached: two heartbeats are longer.
THRESHOLDS = [
    ("claimed_stale_threshold_ms", 3_600_000),
    ("running_stale_threshold_ms", 7_200_000),
    ("finalizing_stale_threshold_ms", 7_200_000),
]
HEARTBEATS = ["runner_heartbeat_interval_ms", "claimer_heartbeat_interval_ms"]
DURATIONS = ["heartbeat_interval", "sweep_interval", "sweep_threshold", "recovery_delay"]
BROKER = PostgresConfig(database_url="postgresql://u:p@h/d")


def build(**fields: Any) -> RecoveryConfig:
    return RecoveryConfig(**{"runner_heartbeat_interval_ms": 1_000, "claimer_heartbeat_interval_ms": 1_000, **fields})


def in_force(of_app: WorkerRecoveryConfig, **worker: Any) -> WorkerRecoveryConfig:
    """The worker recovery of a worker that is told this, in an app that says that."""
    app = Horsies(AppConfig(broker=BROKER, worker_recovery=of_app))
    return Plan.of(app, WorkerConfig(app_locator="shop:app", **worker)).recovery


def test_r01_defaults() -> None:
    assert RecoveryConfig().model_dump() == DEFAULTS


@each(("field", "low", "high"), RANGES)
def test_r01_ranges(field: str, low: int, high: int) -> None:
    assert getattr(build(**{field: low}), field) == low
    assert getattr(build(**{field: high}), field) == high
    for wrong in (low - 1, high + 1, "soon", None if field.endswith("_ms") else -1):
        with pytest.raises(ValueError, match=rf"HRS-204.*RecoveryConfig\.{field}"):
            build(**{field: wrong})


@each(("field", "high"), THRESHOLDS)
def test_r01_ranges_of_thresholds(field: str, high: int) -> None:
    assert getattr(build(**{field: 2_000}), field) == 2_000
    assert getattr(build(**{field: high}), field) == high
    with pytest.raises(ValueError, match="greater than or equal to 1000"):
        build(**{field: 999})
    with pytest.raises(ValueError, match=f"less than or equal to {high}"):
        build(**{field: high + 1})


@each("field", HEARTBEATS)
def test_r01_ranges_of_heartbeats(field: str) -> None:
    patient = dict.fromkeys(("claimed_stale_threshold_ms", "running_stale_threshold_ms"), 240_000)
    for allowed in (1_000, 120_000):
        assert getattr(RecoveryConfig(**{**patient, field: allowed}), field) == allowed
    for wrong in (999, 120_001):
        with pytest.raises(ValueError, match="HRS-204"):
            RecoveryConfig(**{**patient, field: wrong})


@each("field", [name for name, _, _ in RANGES if name.endswith("_hours")])
def test_r01_none_keeps_records(field: str) -> None:
    assert getattr(build(**{field: None}), field) is None


@each(
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
        with pytest.raises(ConfigurationError, match="HRS-204") as raised:
            RecoveryConfig(**{interval: 30_000, threshold: age})
        assert threshold in str(raised.value) and interval in str(raised.value)


def test_r02_all_failures_together() -> None:
    with pytest.raises(MultipleValidationErrors) as raised:
        RecoveryConfig(claimed_stale_threshold_ms=1_000, running_stale_threshold_ms=1_000, check_interval_ms=1)
    messages = [error.message for error in raised.value.report.errors]
    assert len(messages) == 3
    assert all(error.code == "HRS-204" for error in raised.value.report.errors)
    assert isinstance(raised.value, ValueError)


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
    assert set(WorkerRecoveryConfig.model_fields) == {
        "enabled", *DURATIONS, "resilient_sweep_threshold_multiplier", "resilient_job_flags", "max_recoveries_per_task"
    }  # fmt: skip


@each("name", DURATIONS)
def test_r05_a_number_means_seconds(name: str) -> None:
    span = 100.5 if name == "sweep_threshold" else 1.5
    assert getattr(WorkerRecoveryConfig(**{name: span}), name) == timedelta(seconds=span)
    assert getattr(WorkerConfig(**{name: span}), name) == timedelta(seconds=span)
    changed = getattr(WorkerRecoveryConfig(), f"with_{name}")(span)
    assert getattr(changed, name) == timedelta(seconds=span)


@each("name", DURATIONS)
@each("wrong", [math.nan, math.inf, 1e300, "soon", "nan", timedelta(days=366), [1], True])
def test_r05_what_is_no_duration_is_refused(name: str, wrong: object) -> None:
    for model in (WorkerRecoveryConfig, WorkerConfig):
        with pytest.raises(ValueError, match=rf"HRS-204.*{model.__name__}\.{name}"):
            model(**{name: wrong})


def test_r06_setting_any_value_enables() -> None:
    assert WorkerRecoveryConfig(enabled=True).enabled
    assert WorkerRecoveryConfig(sweep_interval=timedelta(seconds=5)).enabled
    assert WorkerRecoveryConfig(sweep_interval=timedelta(seconds=60)).enabled, "also to the value it has anyway"
    assert WorkerRecoveryConfig(resilient_job_flags=[]).enabled
    assert WorkerRecoveryConfig(max_recoveries_per_task=None).enabled
    assert not WorkerRecoveryConfig(enabled=False, sweep_interval=timedelta(seconds=5)).enabled


def test_r06_a_copy_by_its_fields_stays_as_it_was() -> None:
    for config in (WorkerRecoveryConfig(), WorkerRecoveryConfig(recovery_delay=timedelta(0))):
        assert WorkerRecoveryConfig(**config.model_dump()) == config
        assert WorkerRecoveryConfig.model_validate_json(config.model_dump_json()) == config


@each(
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


def test_r06_a_copy_keeps_the_other_settings_and_its_flags_are_its_own() -> None:
    first = WorkerRecoveryConfig(recovery_delay=timedelta(seconds=9), resilient_job_flags=["a"])
    second = first.with_sweep_interval(7)
    assert second.recovery_delay == timedelta(seconds=9)
    second.resilient_job_flags.append("b")
    assert first.resilient_job_flags == ["a"]


def test_r06_the_last_call_wins() -> None:
    plain = WorkerRecoveryConfig()
    assert not plain.with_sweep_interval(timedelta(seconds=7)).with_enabled(False).enabled
    assert plain.with_enabled(False).with_sweep_interval(timedelta(seconds=7)).enabled
    assert plain.with_enabled(True).enabled and not plain.with_enabled(True).with_enabled(False).enabled


def test_r06_the_object_does_not_change() -> None:
    for name in WorkerRecoveryConfig.model_fields:
        with pytest.raises(ValueError):
            setattr(WorkerRecoveryConfig(), name, getattr(WorkerRecoveryConfig(), name))


@each("name", DURATIONS)
def test_r07_a_setting_of_the_worker_overrides_that_of_the_app_and_turns_recovery_on(name: str) -> None:
    of_app = WorkerRecoveryConfig(enabled=False, **{**dict.fromkeys(DURATIONS, 100), "sweep_threshold": 1000})
    given = timedelta(seconds=300)
    worker = in_force(of_app, **{name: given})
    assert worker.enabled and getattr(worker, name) == given
    others = {other: getattr(worker, other) for other in DURATIONS if other != name}
    assert others == {other: getattr(of_app, other) for other in DURATIONS if other != name}


def test_r07_a_setting_of_the_worker_joins_the_rest_of_the_apps() -> None:
    of_app = WorkerRecoveryConfig(resilient_job_flags=["mine"], max_recoveries_per_task=None)
    worker = in_force(of_app, sweep_interval=5)
    assert (worker.resilient_job_flags, worker.max_recoveries_per_task) == (["mine"], None)


def test_r07_the_worker_is_judged_with_both_together() -> None:
    of_app = WorkerRecoveryConfig(sweep_threshold=60, heartbeat_interval=30)
    assert in_force(of_app, sweep_threshold=60).sweep_threshold == timedelta(seconds=60)
    with pytest.raises(ConfigurationError, match="HRS-204") as raised:
        in_force(of_app, sweep_threshold=59)
    assert "sweep_threshold, heartbeat_interval" in str(raised.value)


@each(
    "fields",
    [
        {"heartbeat_interval": timedelta(0)},
        {"sweep_interval": timedelta(seconds=-1)},
        {"sweep_interval": timedelta(0)},
        {"sweep_threshold": timedelta(0)},
        {"recovery_delay": timedelta(seconds=-1)},
        {"heartbeat_interval": timedelta(seconds=30), "sweep_threshold": timedelta(seconds=59)},
        {"resilient_sweep_threshold_multiplier": 0},
        {"resilient_sweep_threshold_multiplier": 1.5},
        {"resilient_sweep_threshold_multiplier": True},
        {"resilient_sweep_threshold_multiplier": 1_001},
        {"resilient_job_flags": [""]},
        {"resilient_job_flags": "slow"},
        {"max_recoveries_per_task": 0},
        {"max_recoveries_per_task": True},
    ],
)
def test_r08_validation(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="HRS-204") as raised:
        WorkerRecoveryConfig(**fields)
    assert all(name in str(raised.value) for name in fields)


def test_r08_all_failures_together() -> None:
    with pytest.raises(MultipleValidationErrors) as raised:
        WorkerRecoveryConfig(sweep_interval=0, recovery_delay=-1, heartbeat_interval=200)  # type: ignore[arg-type]
    assert [error.code for error in raised.value.report.errors] == ["HRS-204"] * 3


def test_r08_equality_is_valid_and_an_empty_list_turns_resilience_off() -> None:
    exact = WorkerRecoveryConfig(heartbeat_interval=timedelta(seconds=30), sweep_threshold=timedelta(seconds=60))
    assert exact.enabled
    assert WorkerRecoveryConfig(recovery_delay=timedelta(0)).recovery_delay == timedelta(0)
    assert WorkerRecoveryConfig(resilient_job_flags=[]).resilient_job_flags == []


def test_r09_an_object_for_all_workers_of_an_app() -> None:
    of_app = WorkerRecoveryConfig(recovery_delay=timedelta(seconds=9))
    assert in_force(of_app) == of_app
    assert not in_force(WorkerRecoveryConfig()).enabled


def test_r09_an_object_for_one_worker_replaces_the_apps() -> None:
    of_app = WorkerRecoveryConfig(recovery_delay=timedelta(seconds=9), max_recoveries_per_task=None)
    own = WorkerRecoveryConfig(sweep_interval=timedelta(seconds=7))
    assert in_force(of_app, worker_recovery=own) == own
    assert not in_force(of_app, worker_recovery=WorkerRecoveryConfig()).enabled
    assert in_force(of_app, worker_recovery=own, sweep_threshold=600) == own.with_sweep_threshold(600)


def test_r09_settings_may_be_given_as_a_mapping() -> None:
    settings: dict[str, Any] = {"recovery": {"check_interval_ms": 5_000}, "worker_recovery": {"sweep_interval": 5}}
    config = AppConfig(broker=BROKER, **settings)
    assert config.recovery == RecoveryConfig(check_interval_ms=5_000)
    assert config.worker_recovery == WorkerRecoveryConfig(sweep_interval=timedelta(seconds=5))
    assert config.worker_recovery.enabled
    with pytest.raises(ConfigurationError, match="HRS-204"):
        AppConfig(broker=BROKER, worker_recovery={"sweep_interval": 0})  # type: ignore[arg-type]


def test_r63_a_worker_registers_its_settings_in_whole_milliseconds_never_less() -> None:
    of_app = WorkerRecoveryConfig(sweep_interval=1.001, recovery_delay=0.0004)  # type: ignore[arg-type]
    app = Horsies(AppConfig(broker=BROKER, worker_recovery=of_app))
    settings = Plan.of(app, WorkerConfig(app_locator="shop:app")).recovery_settings()
    shown = settings.pop("worker_recovery")
    assert settings == DEFAULTS
    assert [shown[name] for name in DURATIONS] == [30_000, 1_001, 300_000, 1]
