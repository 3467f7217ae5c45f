"""What counts as stale, who brings it back and how long records are kept.

`RecoveryConfig` speaks of single tasks (the reaper), `WorkerRecoveryConfig` of whole workers (the sweeper). Intervals
and thresholds of the first are milliseconds, retentions hours; the second uses `timedelta`, a number meaning seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from horsies.core.errors import ErrorCode
from horsies.core.models.base import ConfigModel, Violation

INFRASTRUCTURE_RESILIENT_FLAG = "infrastructure_resilient"


class RecoveryConfig(ConfigModel):
    """When a task is taken for dead, and what is done then."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CONFIG_INVALID_RECOVERY

    auto_requeue_stale_claimed: bool = True
    claimed_stale_threshold_ms: int = Field(default=120_000, ge=1_000, le=3_600_000)
    auto_fail_stale_running: bool = True
    running_stale_threshold_ms: int = Field(default=300_000, ge=1_000, le=7_200_000)
    finalizing_stale_threshold_ms: int = Field(default=300_000, ge=1_000, le=7_200_000)
    # 0 turns the waiting off, not the reconciliation: a mismatch is then repaired on the next pass.
    crashed_worker_recovery_grace_ms: int = Field(default=10_000, ge=0, le=3_600_000)
    check_interval_ms: int = Field(default=30_000, ge=1_000, le=600_000)
    runner_heartbeat_interval_ms: int = Field(default=30_000, ge=1_000, le=120_000)
    claimer_heartbeat_interval_ms: int = Field(default=30_000, ge=1_000, le=120_000)
    heartbeat_retention_hours: int | None = Field(default=24, ge=1, le=8_760)
    worker_state_retention_hours: int | None = Field(default=168, ge=1, le=8_760)
    terminal_record_retention_hours: int | None = Field(default=720, ge=1, le=43_800)
    worker_state_snapshot_interval_ms: int = Field(default=30_000, ge=1_000, le=300_000)
    use_liveness_evidence: bool = True

    def _violations(self) -> Iterator[Violation]:
        yield from self._stale_thresholds_outlive_heartbeats()

    def _stale_thresholds_outlive_heartbeats(self) -> Iterator[Violation]:
        for threshold, interval in (
            ("claimed_stale_threshold_ms", "claimer_heartbeat_interval_ms"),
            ("running_stale_threshold_ms", "runner_heartbeat_interval_ms"),
            ("finalizing_stale_threshold_ms", "runner_heartbeat_interval_ms"),
        ):
            age, beat = getattr(self, threshold), getattr(self, interval)
            if age < 2 * beat:
                yield Violation(
                    (threshold, interval),
                    f"the threshold must be at least two heartbeats: {age} < 2 x {beat}",
                    help_text=f"raise {threshold} to {2 * beat} or lower {interval} to {age // 2}",
                )


def _seconds(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return timedelta(seconds=value)
        except (OverflowError, ValueError):
            raise ValueError("not a duration in seconds") from None
    return value


Duration = Annotated[timedelta, BeforeValidator(_seconds)]


class WorkerRecoveryConfig(ConfigModel):
    """Worker-level sweeping. Setting anything enables it, unless `enabled=False` is said."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CONFIG_INVALID_RECOVERY

    enabled: bool = False
    heartbeat_interval: Duration = timedelta(seconds=30)
    sweep_interval: Duration = timedelta(seconds=60)
    sweep_threshold: Duration = timedelta(minutes=5)
    recovery_delay: Duration = timedelta(seconds=30)
    resilient_sweep_threshold_multiplier: int = Field(default=3, ge=1, strict=True)
    resilient_job_flags: list[str] = Field(default_factory=lambda: [INFRASTRUCTURE_RESILIENT_FLAG])
    max_recoveries_per_task: int | None = Field(default=5, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _setting_anything_enables(cls, data: Any) -> Any:
        if isinstance(data, dict) and data and "enabled" not in data:
            return {**data, "enabled": True}
        return data

    @field_validator("heartbeat_interval", "sweep_interval", "sweep_threshold")
    @classmethod
    def _takes_time(cls, value: timedelta) -> timedelta:
        if value <= timedelta(0):
            raise ValueError("must be longer than zero")
        return value

    @field_validator("recovery_delay")
    @classmethod
    def _is_not_negative(cls, value: timedelta) -> timedelta:
        if value < timedelta(0):
            raise ValueError("must not be negative")
        return value

    @field_validator("resilient_job_flags")
    @classmethod
    def _flags_have_names(cls, flags: list[str]) -> list[str]:
        if not all(flags):
            raise ValueError("a flag has a name of at least one character")
        return flags

    def _violations(self) -> Iterator[Violation]:
        if self.sweep_threshold < 2 * self.heartbeat_interval:
            yield Violation(
                ("sweep_threshold", "heartbeat_interval"),
                "the threshold must be at least two heartbeats: "
                f"{self.sweep_threshold} < 2 x {self.heartbeat_interval}",
            )

    def with_enabled(self, flag: bool) -> Self:
        return self._with(enabled=flag)

    def with_heartbeat_interval(self, value: timedelta | float) -> Self:
        return self._with(heartbeat_interval=value)

    def with_sweep_interval(self, value: timedelta | float) -> Self:
        return self._with(sweep_interval=value)

    def with_sweep_threshold(self, value: timedelta | float) -> Self:
        return self._with(sweep_threshold=value)

    def with_recovery_delay(self, value: timedelta | float) -> Self:
        return self._with(recovery_delay=value)

    def with_resilient_sweep_threshold_multiplier(self, value: int) -> Self:
        return self._with(resilient_sweep_threshold_multiplier=value)

    def with_resilient_job_flags(self, value: list[str]) -> Self:
        return self._with(resilient_job_flags=value)

    def with_max_recoveries_per_task(self, value: int | None) -> Self:
        return self._with(max_recoveries_per_task=value)

    def _with(self, **changed: Any) -> Self:
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**fields, "enabled": True, **changed})
