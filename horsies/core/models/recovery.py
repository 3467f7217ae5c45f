"""How tasks and workers are recovered: what counts as stale, what happens then, and how long records are kept.

`RecoveryConfig` is about single tasks (the reaper), `WorkerRecoveryConfig` about whole workers (the sweeper), and
`WorkerResilienceConfig` says how a worker behaves while its database is away. The first has intervals and thresholds in
milliseconds and retention times in hours; the second uses `timedelta`, where a number means seconds. The options and
results of manual sweeps are here too (R-43, R-49, R-94).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from horsies.core.errors import ErrorCode
from horsies.core.models.base import MOST, ConfigModel, Violation

INFRASTRUCTURE_RESILIENT_FLAG = "infrastructure_resilient"

# Other workers judge a worker by its settings. A span beyond the calendar would make their statements fail.
LONGEST = timedelta(days=365)


class RecoveryConfig(ConfigModel):
    """When a task counts as dead, and what happens then."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CONFIG_INVALID_RECOVERY

    auto_requeue_stale_claimed: bool = Field(
        default=True, description="return claimed tasks without recent heartbeats to the queue"
    )
    claimed_stale_threshold_ms: int = Field(
        default=120_000,
        ge=1_000,
        le=3_600_000,
        description="age of the last heartbeat after which a claimed task is returned",
    )
    auto_fail_stale_running: bool = Field(
        default=True, description="retry or fail running tasks without recent heartbeats, by their policy"
    )
    running_stale_threshold_ms: int = Field(
        default=300_000,
        ge=1_000,
        le=7_200_000,
        description="age of the last heartbeat after which a running task counts as crashed",
    )
    finalizing_stale_threshold_ms: int = Field(
        default=300_000,
        ge=1_000,
        le=7_200_000,
        description="how long recovery waits for a result that is still to be written",
    )
    # 0 turns off the waiting and not the reconciliation: a mismatch is then repaired on the next pass.
    crashed_worker_recovery_grace_ms: int = Field(
        default=10_000,
        ge=0,
        le=3_600_000,
        description="how long after the end of a task a missing workflow step is repaired; 0: at once",
    )
    check_interval_ms: int = Field(
        default=30_000, ge=1_000, le=600_000, description="time between passes of the reaper"
    )
    runner_heartbeat_interval_ms: int = Field(
        default=30_000, ge=1_000, le=120_000, description="time between heartbeats of running tasks"
    )
    claimer_heartbeat_interval_ms: int = Field(
        default=30_000, ge=1_000, le=120_000, description="time between heartbeats and renewals of claimed tasks"
    )
    heartbeat_retention_hours: int | None = Field(
        default=24, ge=1, le=8_760, description="how long heartbeats are kept; `None`: for ever"
    )
    worker_state_retention_hours: int | None = Field(
        default=168, ge=1, le=8_760, description="how long snapshots of workers are kept; `None`: for ever"
    )
    terminal_record_retention_hours: int | None = Field(
        default=720, ge=1, le=43_800, description="how long ended tasks are kept; `None`: for ever"
    )
    rollup_retention_hours: int | None = Field(
        default=168, ge=1, le=43_800, description="how long statistics by minute are kept; `None`: for ever"
    )
    audit_retention_hours: int | None = Field(
        default=2_160, ge=1, le=43_800, description="how long the record of what people did is kept; `None`: for ever"
    )
    worker_state_snapshot_interval_ms: int = Field(
        default=30_000, ge=1_000, le=300_000, description="time between snapshots of a worker"
    )
    unknown_task_grace_ms: int = Field(
        default=600_000,
        ge=0,
        le=604_800_000,
        description="how long a task waits that no live worker knows, or that is left because its arguments cannot be"
        " read; 0: it fails at once",
    )
    use_liveness_evidence: bool = Field(
        default=True,
        description="recover at once when a worker is proven to be gone, instead of waiting for a threshold",
    )

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
    if isinstance(value, bool):
        raise ValueError("not a duration")
    if isinstance(value, int | float):
        try:
            return timedelta(seconds=value)
        except (OverflowError, ValueError):
            raise ValueError("not a duration in seconds") from None
    return value


# The reference shows limits that pydantic knows.
Duration = Annotated[timedelta, BeforeValidator(_seconds), Field(gt=timedelta(0), le=LONGEST)]
Delay = Annotated[timedelta, BeforeValidator(_seconds), Field(ge=timedelta(0), le=LONGEST)]


class WorkerRecoveryConfig(ConfigModel):
    """Recovery of whole workers. Setting any value enables it, unless `enabled=False` is given."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CONFIG_INVALID_RECOVERY

    enabled: bool = Field(
        default=False,
        description="recover the tasks of dead workers; setting any other value turns it on, unless this is `False`",
    )
    heartbeat_interval: Duration = Field(
        default=timedelta(seconds=30), description="time between heartbeats of the worker itself"
    )
    sweep_interval: Duration = Field(default=timedelta(seconds=60), description="time between sweeps")
    sweep_threshold: Duration = Field(
        default=timedelta(minutes=5), description="silence after which a worker counts as dead"
    )
    recovery_delay: Delay = Field(
        default=timedelta(seconds=30), description="delay before a recovered task may run again"
    )
    resilient_sweep_threshold_multiplier: int = Field(
        default=3,
        ge=1,
        le=1_000,
        strict=True,
        description="multiplies `sweep_threshold` for workers that hold resilient tasks",
    )
    resilient_job_flags: list[str] = Field(
        default_factory=lambda: [INFRASTRUCTURE_RESILIENT_FLAG], description="flags that make a task resilient"
    )
    max_recoveries_per_task: int | None = Field(
        default=5,
        ge=1,
        le=MOST,
        strict=True,
        description="after this many recoveries the task runs alone in its worker, and then only its own retry policy"
        " decides; `None`: no limit",
    )

    @model_validator(mode="before")
    @classmethod
    def _setting_anything_enables(cls, data: Any) -> Any:
        if isinstance(data, dict) and data and "enabled" not in data:
            return {**data, "enabled": True}
        return data

    @field_validator("resilient_job_flags")
    @classmethod
    def _flags_have_names(cls, flags: list[str]) -> list[str]:
        if not all(flags):
            raise ValueError("a flag name must have at least one character")
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
        # Only fields that were set: a manual sweep treats a given threshold differently from the default.
        fields = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**fields, "enabled": True, **changed})


class SweepStaleWorkersOptions(ConfigModel):
    """Settings of one sweep. A value of None is taken from the recovery configuration."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CONFIG_INVALID_RECOVERY

    sweep_threshold: Duration | None = Field(default=None, description="silence after which a worker counts as dead")
    recovery_delay: Delay | None = Field(default=None, description="delay before a recovered task may run again")
    dry_run: bool = Field(default=False, description="only report which workers count as dead")


@dataclass(frozen=True, slots=True)
class SweepStaleWorkersResult:
    """What a sweep has done."""

    recovered_count: int = 0
    worker_ids: list[str] = field(default_factory=list)  # dead workers, and workers that had left tasks behind; sorted
    skipped_count: int = 0  # tasks that a hook wanted to skip, or that the database refused
    deferred_count: int = 0  # tasks left for a later sweep
    dry_run: bool = False
    lock_acquired: bool = False  # False: another process was sweeping, or it was a dry run


@dataclass(frozen=True, slots=True)
class WorkerSilence:
    """How long a registered worker has been silent, and what that means for a sweep."""

    worker_id: str
    takes_part: bool  # it runs with worker recovery; a sweep ignores other workers
    silence_s: float
    heartbeat_interval_s: float | None  # None: it did not say


@dataclass(frozen=True, slots=True)
class ActiveWorker:
    """A registered worker."""

    worker_id: str
    is_stale: bool
    started_at: datetime
    last_heartbeat_at: datetime
    hostname: str | None
    pid: int | None


class WorkerResilienceConfig(ConfigModel):
    """Backoff of database retries (`db_retry_max_attempts` 0: no limit) and the poll that covers lost notifications."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CONFIG_INVALID_RESILIENCE

    db_retry_initial_ms: int = Field(
        default=500, ge=100, le=60_000, description="first delay after a failure of the database"
    )
    db_retry_max_ms: int = Field(default=30_000, ge=500, le=300_000, description="the delay doubles up to this")
    db_retry_max_attempts: int = Field(
        default=0, ge=0, le=10_000, description="failures in a row after which the worker gives up; 0: never"
    )
    notify_poll_interval_ms: int = Field(
        default=5_000, ge=1_000, le=300_000, description="time between polls without a notification"
    )

    def _violations(self) -> Iterator[Violation]:
        if self.db_retry_max_ms < self.db_retry_initial_ms:
            yield Violation(
                ("db_retry_max_ms", "db_retry_initial_ms"),
                f"the longest delay is shorter than the first: {self.db_retry_max_ms} < {self.db_retry_initial_ms}",
            )
