"""What a worker is going to do, computed once from the settings of the app and the worker. No I/O, no state."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from horsies.core.app import Horsies
from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.recovery import WorkerRecoveryConfig
from horsies.core.scheduler.checks import require_schedule
from horsies.core.worker.capacity import MAX_AHEAD, Limits
from horsies.core.worker.config import WorkerConfig
from horsies.core.worker.identity import Identity
from horsies.core.worker.launcher import ChildSpec

A_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Plan:
    """The settings in effect."""

    app: Horsies
    config: WorkerConfig
    postgres: PostgresConfig
    limits: Limits
    recovery: WorkerRecoveryConfig
    child_spec: ChildSpec

    @classmethod
    def of(cls, app: Horsies, config: WorkerConfig) -> Plan:
        if config.with_scheduler:
            require_schedule(app.config)
        postgres = app.config.broker
        if config.dsn is not None:
            postgres = postgres.elsewhere(config.dsn)
        beat_ms = min(app.config.recovery.runner_heartbeat_interval_ms // 3, 1_000)
        spec = ChildSpec(
            app_locator=config.app_locator or locator_of(app),
            imports=config.imports,
            beat_interval_ms=beat_ms,
            concurrency=config.concurrency,
            loglevel=config.loglevel,
            log_format=config.log_format,
            database_url=config.dsn,
        )
        return cls(app, config, postgres, _limits(app, config), config.recovery_for(app.config.worker_recovery), spec)

    @property
    def lease(self) -> timedelta:
        return timedelta(milliseconds=self.app.config.effective_lease_ms)

    @property
    def max_claim_age(self) -> timedelta:
        return timedelta(milliseconds=self.app.config.max_claim_renew_age_ms)

    @property
    def poll_s(self) -> float:
        return self.app.config.resilience.notify_poll_interval_ms / 1000

    @property
    def pool_size(self) -> int:
        return self.postgres.pool_size if self.postgres.worker_pool_size is None else self.postgres.worker_pool_size

    @property
    def pool_overflow(self) -> int:
        given = self.postgres.worker_max_overflow
        return self.postgres.max_overflow if given is None else given

    @property
    def queues(self) -> list[str]:
        return [name for name, _ in self.limits.queues]

    def headline(self) -> str:
        """The line that a worker logs when it starts (W-07)."""
        return (
            f"worker ready: queues={','.join(self.queues)} processes={self.config.processes} "
            f"concurrency={self.config.concurrency} cluster_wide_cap={self.limits.cluster_cap} "
            f"max_claim_per_worker={self.max_claim_per_worker} max_claim_batch={self.config.max_claim_batch} "
            f"run_ahead_ms={self.config.run_ahead_ms}"
        )

    @property
    def max_claim_per_worker(self) -> int:
        """The limit in effect: automatic means as many as the slots and the prefetch buffer hold (W-25)."""
        return (
            self.config.max_claim_per_worker or self.config.processes * self.config.concurrency + self.limits.prefetch
        )

    @property
    def journal_slots(self) -> int:
        """The slots of the start journal (R-103): for twice as many tasks as the worker may hold."""
        ahead = MAX_AHEAD if self.limits.may_run_ahead else 0
        return 2 * (self.config.processes * (self.config.concurrency + ahead) + self.limits.prefetch) + 64

    def refuse_too_small_memory_limit(self, warmed_mb: float) -> str | None:
        """Refuse a limit that a new child already exceeds, because it would be replaced after every task (W-41). Return
        a warning if it is close."""
        limit = self.config.max_memory_per_child_mb
        if limit is None:
            return None
        if limit <= warmed_mb:
            raise ConfigurationError(
                f"max_memory_per_child_mb={limit} is not more than the {warmed_mb:.0f} MB that a new child uses",
                code=ErrorCode.CLI_INVALID_ARGS,
                help_text=f"set it to at least {int(warmed_mb * 1.5) + 1}",
            )
        if limit * 0.8 <= warmed_mb:
            return f"max_memory_per_child_mb={limit} is close to the {warmed_mb:.0f} MB that a new child uses"
        return None

    def registration(self, me: Identity) -> dict[str, Any]:
        """The row of `horsies_workers`."""
        return {
            "worker_id": me.worker_id,
            "hostname": me.hostname,
            "pid": me.pid,
            "boot_id": me.boot_id,
            "pid_namespace": me.pid_namespace,
            "process_start": me.process_start,
            "liveness_key": me.liveness_key,
            "sweeping": self.recovery.enabled,
            "queues": self.queues,
            "recovery": self.recovery_settings(),
            "metadata": {"prefetch_buffer": self.limits.prefetch},
        }

    def snapshot_settings(self) -> dict[str, Any]:
        """The columns of a snapshot that do not change while the worker lives."""
        return {
            "processes": self.config.processes,
            "queues": self.queues,
            "max_claim_batch": self.config.max_claim_batch,
            "max_claim_per_worker": self.max_claim_per_worker,
            "cluster_wide_cap": self.limits.cluster_cap,
            "queue_priorities": {queue.name: queue.priority for queue in self.app.config.queues()},
            "queue_max_concurrency": {queue.name: queue.max_concurrency for queue in self.app.config.queues()},
            "recovery_config": self.recovery_settings(),
        }

    def recovery_settings(self) -> dict[str, Any]:
        """Both recovery configurations in effect, durations in milliseconds (R-63, W-71)."""
        worker = {
            name: -(-value // A_MILLISECOND) if isinstance(value, timedelta) else value  # never less than it is
            for name, value in self.recovery.model_dump().items()
        }
        return {**self.app.config.recovery.model_dump(), "worker_recovery": worker}


def locator_of(app: Horsies) -> str:
    """Where children find this app: the file, and the variable that contains it."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        names = [name for name, value in list(vars(module).items()) if value is app] if path else []
        if path and names and Path(path).suffix == ".py":
            return f"{Path(path).resolve()}:{names[0]}"
    raise ConfigurationError(
        "the worker's child processes cannot find the app: no loaded module has it in a variable",
        code=ErrorCode.WORKER_INVALID_LOCATOR,
        help_text='keep the app in a module-level variable, or pass WorkerConfig(app_locator="package.module:app")',
    )


def _limits(app: Horsies, config: WorkerConfig) -> Limits:
    served = {queue.name: queue for queue in app.config.queues()}
    for name in config.queues or ():
        if name not in served:
            raise ConfigurationError(
                f"the worker is told to serve the queue {name!r}, but the app has no such queue",
                code=ErrorCode.CLI_INVALID_ARGS,
                help_text=f"the app's queues are: {', '.join(served)}",
            )
    queues = [(q.name, q.max_concurrency) for q in served.values() if config.queues is None or q.name in config.queues]
    return Limits(
        queues=queues,
        cluster_cap=app.config.cluster_wide_cap,
        prefetch=app.config.prefetch_buffer,
        max_claim_batch=config.max_claim_batch,
        max_claim_per_worker=config.max_claim_per_worker,
        run_ahead_ms=config.run_ahead_ms,
        concurrency=config.concurrency,
    )
