"""Settings of one worker process, beside those of the app it serves (W-04)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import ClassVar

from pydantic import Field

from horsies.core.errors import ErrorCode
from horsies.core.models.base import ConfigModel, Violation
from horsies.core.models.recovery import WorkerRecoveryConfig


class WorkerConfig(ConfigModel):
    """What `Worker(app, WorkerConfig(...))` takes. A limit of 0 means automatic, or off where that is the default."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CLI_INVALID_ARGS

    dsn: str | None = Field(default=None, repr=False)
    queues: tuple[str, ...] | None = None
    processes: int = Field(default=1, ge=1, le=1024)
    max_claim_batch: int = Field(default=0, ge=0)
    max_claim_per_worker: int = Field(default=0, ge=0)
    app_locator: str | None = None
    imports: tuple[str, ...] = ()
    max_tasks_per_child: int = Field(default=0, ge=0)
    max_memory_per_child_mb: int | None = Field(default=None, gt=0)
    worker_recovery: WorkerRecoveryConfig | None = None
    heartbeat_interval: timedelta | None = None
    sweep_interval: timedelta | None = None
    sweep_threshold: timedelta | None = None
    recovery_delay: timedelta | None = None
    concurrency: int = Field(default=1, ge=1, le=10_000)
    run_ahead_ms: int = Field(default=20, ge=0, le=1_000)
    shutdown_grace_ms: int | None = Field(default=None, ge=0)
    loglevel: str = "INFO"
    log_format: str = "text"

    def _violations(self) -> Iterator[Violation]:
        if self.max_tasks_per_child == 1:
            yield Violation(("max_tasks_per_child",), "must be 0 (off) or at least 2")

    def recovery_for(self, of_app: WorkerRecoveryConfig) -> WorkerRecoveryConfig:
        """The worker recovery in force: this worker's object instead of the app's, then the shortcuts (R-07, R-09)."""
        base = self.worker_recovery or of_app
        names = ("heartbeat_interval", "sweep_interval", "sweep_threshold", "recovery_delay")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return WorkerRecoveryConfig(**{**base.model_dump(), **given, "enabled": True}) if given else base
