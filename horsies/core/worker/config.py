"""Settings of one worker process, in addition to those of its app (W-04)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from pydantic import Field

from horsies.core.errors import ErrorCode
from horsies.core.models.base import ConfigModel, Violation
from horsies.core.models.recovery import Delay, Duration, WorkerRecoveryConfig

SHORTCUTS = ("heartbeat_interval", "sweep_interval", "sweep_threshold", "recovery_delay")


class WorkerConfig(ConfigModel):
    """The settings of `Worker(app, WorkerConfig(...))`. A limit of 0 means automatic, or off where that is the
    default."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CLI_INVALID_ARGS
    field_error_codes: ClassVar[Mapping[str, ErrorCode]] = dict.fromkeys(
        ("worker_recovery", *SHORTCUTS), ErrorCode.CONFIG_INVALID_RECOVERY
    )

    dsn: str | None = Field(default=None, repr=False, description="use this database instead of the app's")
    queues: tuple[str, ...] | None = Field(default=None, description="serve only these queues")
    processes: int = Field(default=1, ge=1, le=1024, description="child processes")
    max_claim_batch: int = Field(
        default=0, ge=0, description="most tasks claimed from one queue in one pass; 0: automatic"
    )
    max_claim_per_worker: int = Field(default=0, ge=0, description="most tasks claimed and not started; 0: automatic")
    app_locator: str | None = Field(
        default=None, description="where children find the app; found automatically if a module contains it"
    )
    imports: tuple[str, ...] = Field(default=(), description="more modules for children to import")
    max_tasks_per_child: int = Field(
        default=0, ge=0, description="replace a child after this many tasks; 0: never, otherwise at least 2"
    )
    max_memory_per_child_mb: int | None = Field(
        default=None, gt=0, description="replace a child that uses more memory than this"
    )
    worker_recovery: WorkerRecoveryConfig | None = Field(default=None, description="replaces that of the app")
    heartbeat_interval: Duration | None = Field(
        default=None, description="replaces that of `worker_recovery`; turns it on for this worker"
    )
    sweep_interval: Duration | None = Field(default=None, description="the same")
    sweep_threshold: Duration | None = Field(default=None, description="the same")
    recovery_delay: Delay | None = Field(default=None, description="the same")
    concurrency: int = Field(default=1, ge=1, le=10_000, description="how many async tasks each child runs at a time")
    run_ahead_ms: int = Field(
        default=20,
        ge=0,
        le=1_000,
        description="milliseconds of work to prepare for each child if tasks are very short; 0: none",
    )
    shutdown_grace_ms: int | None = Field(
        default=None, ge=0, description="interrupt tasks that still run this long after the stop; `None`: wait for them"
    )
    metrics_port: int | None = Field(
        default=None, ge=0, le=65_535, description="serve /metrics, /healthz and /readyz on this port; `None`: off"
    )
    metrics_host: str = Field(default="127.0.0.1", description="the address to listen on")
    with_scheduler: bool = Field(
        default=False, description="also send the app's scheduled tasks; any number of workers may do so"
    )
    loglevel: str = Field(default="INFO", description="log level of the children")
    log_format: str = Field(default="text", description="log format of the children: `text` or `json`")

    def _violations(self) -> Iterator[Violation]:
        if self.max_tasks_per_child == 1:
            yield Violation(("max_tasks_per_child",), "must be 0 (off) or at least 2")

    def recovery_for(self, of_app: WorkerRecoveryConfig) -> WorkerRecoveryConfig:
        """The worker recovery settings in effect: this worker's object instead of the app's, then the shortcuts (R-07,
        R-09)."""
        base = self.worker_recovery or of_app
        given = {name: value for name in SHORTCUTS if (value := getattr(self, name)) is not None}
        return WorkerRecoveryConfig(**{**base.model_dump(), **given, "enabled": True}) if given else base
