"""The settings of an application, validated as a whole."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import Field, SecretStr

from horsies.core.errors import ErrorCode
from horsies.core.exception_mapper import (
    DEFAULT_UNHANDLED_ERROR_CODE,
    ExceptionMapper,
    default_code_problems,
    mapper_problems,
)
from horsies.core.models.base import A_DAY_MS, MOST, ConfigModel, Violation
from horsies.core.models.broker import PostgresConfig, driver_url, redact_url
from horsies.core.models.notes import TaskLogs
from horsies.core.models.queues import DEFAULT_PRIORITY, DEFAULT_QUEUE, CustomQueueConfig, QueueMode
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig, WorkerResilienceConfig
from horsies.core.models.schedule import ScheduleConfig, TaskSchedule

DEFAULT_LEASE_MS = 60_000
LARGEST_TEXT = (1 << 30) - 1  # bytes that PostgreSQL can store in one value
_SCHEDULES_SHOWN = 20


class PayloadPolicy(ConfigModel):
    """When a serialized payload causes a warning, and when it is refused."""

    warn_bytes: int | None = Field(
        default=1_048_576,
        ge=1,
        le=LARGEST_TEXT,
        description="warn about arguments and results larger than this; `None`: never",
    )
    reject_bytes: int | None = Field(
        default=None, ge=1, le=LARGEST_TEXT, description="refuse to send arguments larger than this"
    )


class AppConfig(ConfigModel):
    """All settings of an application. Immutable."""

    field_error_codes: ClassVar[Mapping[str, ErrorCode]] = {
        "broker": ErrorCode.BROKER_INVALID_URL,
        "queue_mode": ErrorCode.CONFIG_INVALID_QUEUE_MODE,
        "custom_queues": ErrorCode.CONFIG_INVALID_QUEUE_MODE,
        "cluster_wide_cap": ErrorCode.CONFIG_INVALID_CLUSTER_CAP,
        "prefetch_buffer": ErrorCode.CONFIG_INVALID_PREFETCH,
        "claim_lease_ms": ErrorCode.CONFIG_INVALID_PREFETCH,
        "max_claim_renew_age_ms": ErrorCode.CONFIG_INVALID_PREFETCH,
        "recovery": ErrorCode.CONFIG_INVALID_RECOVERY,
        "worker_recovery": ErrorCode.CONFIG_INVALID_RECOVERY,
        "resilience": ErrorCode.CONFIG_INVALID_RESILIENCE,
        "schedule": ErrorCode.CONFIG_INVALID_SCHEDULE,
        "exception_mapper": ErrorCode.CONFIG_INVALID_EXCEPTION_MAPPER,
        "default_unhandled_error_code": ErrorCode.CONFIG_INVALID_EXCEPTION_MAPPER,
    }

    broker: PostgresConfig = Field(description="the database")
    queue_mode: QueueMode = Field(
        default=QueueMode.DEFAULT, description="one queue named `default`, or queues of your own"
    )
    custom_queues: list[CustomQueueConfig] | None = Field(default=None, description="the queues of `QueueMode.CUSTOM`")
    cluster_wide_cap: int | None = Field(
        default=None, gt=0, le=MOST, description="most tasks CLAIMED or RUNNING at the same time, over all workers"
    )
    prefetch_buffer: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="how many tasks a worker may claim beyond its slots; makes queue limits soft",
    )
    claim_lease_ms: int | None = Field(
        default=None,
        le=A_DAY_MS,
        description="how long a claim holds without renewal; `None` means 60 000; required with `prefetch_buffer`",
    )
    max_claim_renew_age_ms: int = Field(
        default=180_000, gt=0, le=7 * A_DAY_MS, description="claims older than this are no longer renewed and expire"
    )
    recovery: RecoveryConfig = Field(
        default_factory=RecoveryConfig, description="when a task counts as lost, and how long records are kept"
    )
    worker_recovery: WorkerRecoveryConfig = Field(
        default_factory=WorkerRecoveryConfig,
        description="recovery of whole workers that are gone",
    )
    resilience: WorkerResilienceConfig = Field(
        default_factory=WorkerResilienceConfig, description="how a worker retries when the database fails"
    )
    schedule: ScheduleConfig | None = Field(default=None, description="the schedules of the app")
    payload: PayloadPolicy = Field(default_factory=PayloadPolicy, description="how large arguments and results may be")
    exception_mapper: ExceptionMapper = Field(
        default_factory=dict, description="maps exception classes to error codes, for exceptions that leave a task"
    )
    default_unhandled_error_code: str = Field(
        default=DEFAULT_UNHANDLED_ERROR_CODE, description="the code of exceptions without a mapping"
    )
    task_logs: TaskLogs | None = Field(
        default=None, description="keep what tasks log with them; `None`: only the output of the worker has it"
    )
    resend_on_transient_err: bool = Field(
        default=False,
        description="repeat a send automatically when the database fails (3 times, after 200, 400 and 800 ms)",
    )

    @classmethod
    def for_database_url(cls, url: str | SecretStr, **fields: Any) -> AppConfig:
        """The settings for a database, given its URL with or without the driver's name."""
        text = url.get_secret_value() if isinstance(url, SecretStr) else url
        return cls(broker=PostgresConfig(database_url=SecretStr(driver_url(text))), **fields)

    def _violations(self) -> Iterator[Violation]:
        for text, code in mapper_problems(self.exception_mapper):
            yield Violation(("exception_mapper",), text, code)
        for text, code in default_code_problems(self.default_unhandled_error_code):
            yield Violation(("default_unhandled_error_code",), text, code)
        yield from self._queues_fit_their_mode()
        yield from self._cluster_cap_excludes_prefetch()
        yield from self._leases_outlive_heartbeats()

    def _queues_fit_their_mode(self) -> Iterator[Violation]:
        fields, code = ("custom_queues", "queue_mode"), ErrorCode.CONFIG_INVALID_QUEUE_MODE
        if self.queue_mode is QueueMode.DEFAULT:
            if self.custom_queues is not None:
                yield Violation(fields, "custom_queues are for QueueMode.CUSTOM", code)
        elif not self.custom_queues:
            yield Violation(fields, "QueueMode.CUSTOM needs at least one queue", code)
        else:
            names = [queue.name for queue in self.custom_queues]
            for name in sorted({name for name in names if names.count(name) > 1}):
                yield Violation(fields, f"queue {name!r} is listed more than once", code)
            if sum(queue.share or 0 for queue in self.custom_queues) > 1 + 1e-9:
                yield Violation(("custom_queues",), "the shares of the queues are more than 1 in all", code)

    def _cluster_cap_excludes_prefetch(self) -> Iterator[Violation]:
        if self.cluster_wide_cap is not None and self.prefetch_buffer > 0:
            yield Violation(
                ("cluster_wide_cap", "prefetch_buffer"),
                "prefetched tasks would count against the cap without running; use only one of the two",
                ErrorCode.CONFIG_INVALID_CLUSTER_CAP,
            )

    def _leases_outlive_heartbeats(self) -> Iterator[Violation]:
        code, beat = ErrorCode.CONFIG_INVALID_PREFETCH, self.recovery.claimer_heartbeat_interval_ms
        if self.prefetch_buffer > 0 and self.claim_lease_ms is None:
            yield Violation(("claim_lease_ms", "prefetch_buffer"), "prefetching needs claim_lease_ms", code)
        if self.claim_lease_ms is not None and self.claim_lease_ms <= 0:
            yield Violation(("claim_lease_ms",), "must be greater than 0", code)
            return
        if self.effective_lease_ms < 2 * beat:
            yield Violation(
                ("claim_lease_ms", "recovery"),
                f"the lease must be at least two claimer heartbeats: {self.effective_lease_ms} < 2 x {beat}",
                code,
            )
        if self.max_claim_renew_age_ms < self.effective_lease_ms:
            yield Violation(
                ("max_claim_renew_age_ms", "claim_lease_ms"),
                f"a claim must be renewable for one lease: {self.max_claim_renew_age_ms} < {self.effective_lease_ms}",
                code,
            )

    @property
    def effective_lease_ms(self) -> int:
        return self.claim_lease_ms or DEFAULT_LEASE_MS

    def queues(self) -> list[CustomQueueConfig]:
        """The queues in the order in which they are claimed from."""
        if self.queue_mode is QueueMode.DEFAULT:
            return [CustomQueueConfig(name=DEFAULT_QUEUE, priority=DEFAULT_PRIORITY, max_concurrency=None)]
        return sorted(self.custom_queues or [], key=lambda queue: queue.priority)

    def priority_of(self, queue: str) -> int:
        """The priority that tasks of this queue get; `KeyError` if there is no such queue."""
        for known in self.queues():
            if known.name == queue:
                return known.priority
        raise KeyError(queue)

    def log_config(self, logger: logging.Logger) -> None:
        """Write the settings at INFO, without passwords."""
        logger.info("horsies configuration:\n%s", "\n".join(self._lines()))

    def _lines(self) -> Iterator[str]:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, ConfigModel):
                yield f"  {name}:"
                yield from (f"    {key}: {_shown(part)}" for key, part in _fields(value))
            elif name == "custom_queues" and value:
                yield f"  {name}:"
                yield from ("    - " + ", ".join(f"{key}={part}" for key, part in _fields(queue)) for queue in value)
            else:
                yield f"  {name}: {_shown(value)}"


def _fields(model: ConfigModel) -> Iterator[tuple[str, Any]]:
    return ((name, getattr(model, name)) for name in type(model).model_fields)


def _shown(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], TaskSchedule):
        # Schedules are shown by name, because their arguments may be secret, and there may be thousands.
        names = [schedule.name for schedule in value[:_SCHEDULES_SHOWN]]
        return f"{len(value)} ({', '.join(names)}{', …' if len(value) > len(names) else ''})"
    if isinstance(value, SecretStr):
        return redact_url(value.get_secret_value())
    if isinstance(value, dict):
        return "{" + ", ".join(f"{getattr(key, '__name__', key)}: {code}" for key, code in value.items()) + "}"
    return str(value)
