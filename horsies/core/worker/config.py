"""What a worker is going to do: its settings (W-04), the plan that follows from them and from those of the app, and the
identity by which others know it.

`Plan` is computed once, without I/O; the parts of the worker read their settings from it. `Identity` has the id of this
worker and the facts by which a process on its host can tell that it is gone (`recovery/dead_workers.py`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from horsies.core import locate
from horsies.core.app import Horsies
from horsies.core.child.wire import MOST_CHILDREN, ChildSpec
from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.models.base import A_YEAR_MS, MOST, ConfigModel, Violation
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.recovery import Delay, Duration, WorkerRecoveryConfig
from horsies.core.recovery.dead_workers import process_start
from horsies.core.scheduler.payloads import require_schedule
from horsies.core.schema.install import lock_key, worker_purpose
from horsies.core.store.names import Known
from horsies.core.tasks.catalogue import NOTHING, Catalogue
from horsies.core.worker import in_hand, pace

SHORTCUTS = ("heartbeat_interval", "sweep_interval", "sweep_threshold", "recovery_delay")
USUAL_CONCURRENCY = 100  # of async tasks in a child
MOST_CLAIMED = 1_000_000
MOST_HELD_BYTES = 1 << 40
A_MILLISECOND = timedelta(milliseconds=1)


class WorkerConfig(ConfigModel):
    """The settings of `Worker(app, WorkerConfig(...))`. A limit of 0 means automatic, or off where that is the
    default."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CLI_INVALID_ARGS
    field_error_codes: ClassVar[Mapping[str, ErrorCode]] = dict.fromkeys(
        ("worker_recovery", *SHORTCUTS), ErrorCode.CONFIG_INVALID_RECOVERY
    )

    dsn: str | None = Field(default=None, repr=False, description="use this database instead of the app's")
    queues: tuple[str, ...] | None = Field(default=None, description="serve only these queues")
    processes: int | None = Field(
        default=None, ge=1, le=MOST_CHILDREN, description="child processes; `None`: one for each usable processor"
    )
    max_claim_batch: int = Field(
        default=0, ge=0, le=MOST_CLAIMED, description="most tasks claimed from one queue in one pass; 0: automatic"
    )
    max_claim_per_worker: int = Field(
        default=0, ge=0, le=MOST_CLAIMED, description="most tasks claimed and not started; 0: automatic"
    )
    app_locator: str | None = Field(
        default=None, description="where children find the app; found automatically if a module contains it"
    )
    imports: tuple[str, ...] = Field(default=(), description="more modules for children to import")
    max_tasks_per_child: int = Field(
        default=0, ge=0, le=MOST, description="replace a child after this many tasks; 0: never, otherwise at least 2"
    )
    max_memory_per_child_mb: int | None = Field(
        default=None, gt=0, le=MOST, description="replace a child that uses more memory than this"
    )
    worker_recovery: WorkerRecoveryConfig | None = Field(default=None, description="replaces that of the app")
    heartbeat_interval: Duration | None = Field(
        default=None, description="replaces that of `worker_recovery`; turns it on for this worker"
    )
    sweep_interval: Duration | None = Field(default=None, description="the same")
    sweep_threshold: Duration | None = Field(default=None, description="the same")
    recovery_delay: Delay | None = Field(default=None, description="the same")
    concurrency: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="how many async tasks each child runs at a time; `None`: 100",
    )
    run_ahead_ms: int = Field(
        default=20,
        ge=0,
        le=1_000,
        description="milliseconds of work to prepare for each child if tasks are very short; 0: none",
    )
    max_held_bytes: int = Field(
        default=in_hand.MAX_HELD_BYTES,
        ge=1,
        le=MOST_HELD_BYTES,
        description="bytes of arguments and results that wait in the worker; one task more may always come",
    )
    shutdown_grace_ms: int | None = Field(
        default=None,
        ge=0,
        le=A_YEAR_MS,
        description="interrupt tasks that still run this long after the stop; `None`: wait for them",
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


@dataclass(frozen=True)
class Plan:
    """The settings in effect."""

    app: Horsies
    config: WorkerConfig
    processes: int
    postgres: PostgresConfig
    limits: in_hand.Limits
    recovery: WorkerRecoveryConfig
    child_spec: ChildSpec

    @classmethod
    def of(cls, app: Horsies, config: WorkerConfig) -> Plan:
        if config.with_scheduler:
            require_schedule(app.config)
        postgres = app.config.broker
        if config.dsn is not None:
            postgres = postgres.elsewhere(config.dsn)
        processes = config.processes or usable_processors()
        beat_ms = min(app.config.recovery.runner_heartbeat_interval_ms // 3, 1_000)
        spec = ChildSpec(
            app_locator=config.app_locator or locator_for_children(app),
            imports=config.imports,
            beat_interval_ms=beat_ms,
            concurrency=config.concurrency or USUAL_CONCURRENCY,
            loglevel=config.loglevel,
            log_format=config.log_format,
            database_url=config.dsn,
        )
        recovery = config.recovery_for(app.config.worker_recovery)
        return cls(app, config, processes, postgres, _limits(app, config), recovery, spec)

    @property
    def lease(self) -> timedelta:
        return timedelta(milliseconds=self.app.config.effective_lease_ms)

    @property
    def max_claim_age(self) -> timedelta:
        return timedelta(milliseconds=self.app.config.max_claim_renew_age_ms)

    @property
    def leaves_unknown(self) -> bool:
        """Whether tasks of unknown names are left to other workers (O-31)."""
        return self.app.config.recovery.unknown_task_grace_ms > 0

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
            f"worker ready: queues={','.join(self.queues)} processes={self.processes} "
            f"concurrency={self.concurrency} cluster_wide_cap={self.limits.cluster_cap} "
            f"max_claim_per_worker={self.max_claim_per_worker} max_claim_batch={self.config.max_claim_batch} "
            f"run_ahead_ms={self.config.run_ahead_ms}"
        )

    def defaults(self) -> str | None:
        """The line that follows it, about what the worker has chosen itself."""
        chosen: list[str] = []
        if self.config.processes is None:
            chosen.append(f"processes={self.processes}, one for each usable processor")
        if self.config.concurrency is None:
            has_async = self.limits.top_concurrency is not None
            reason = "async tasks at a time in each process" if has_async else "as the app has no async tasks"
            chosen.append(f"concurrency={self.concurrency}, {reason}")
        return f"chosen by default: {'; '.join(chosen)}" if chosen else None

    def heed_kinds(self, *, has_async: bool) -> None:
        """The children have said whether the app has async tasks (W-30a)."""
        if self.config.concurrency is None and has_async:
            self.limits.top_concurrency = USUAL_CONCURRENCY

    @property
    def concurrency(self) -> int:
        """How many async tasks a child runs at a time."""
        return self.limits.top_concurrency or self.limits.concurrency

    @property
    def slots(self) -> int:
        """How many tasks can run at the same time (W-24)."""
        return self.processes * self.concurrency

    @property
    def max_claim_per_worker(self) -> int:
        """The limit in effect: automatic means as many as the slots and the prefetch buffer hold (W-25)."""
        return self.config.max_claim_per_worker or self.slots + self.limits.prefetch

    @property
    def journal_slots(self) -> int:
        """The slots of the start journal (R-103): for twice as many tasks as the worker may hold."""
        ahead = pace.MAX_AHEAD if self.limits.may_run_ahead else 0
        return 2 * (self.processes * (self.child_spec.concurrency + ahead) + self.limits.prefetch) + 64

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
        settings = self.snapshot_settings()
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
            "metadata": {
                "prefetch_buffer": self.limits.prefetch,
                "concurrency": self.concurrency,
                **{name: settings[name] for name in ("queue_priorities", "queue_max_concurrency")},
            },
        }

    def team(self, names_hash: str, hook_events: Sequence[str]) -> str:
        """The same for workers that can make each other's recovery passes: the same app, hooks and settings."""
        spec = self.child_spec
        facts = [spec.app_locator, spec.imports, names_hash, sorted(hook_events), self.recovery_settings()]
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]

    def snapshot_settings(self) -> dict[str, Any]:
        """The columns of a snapshot that do not change while the worker lives."""
        return {
            "processes": self.processes,
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


def locator_for_children(app: Horsies) -> str:
    """Where children find this app."""
    if found := locate.locator_of(app):
        return found
    raise ConfigurationError(
        "the worker's child processes cannot find the app: no loaded module has it in a variable",
        code=ErrorCode.WORKER_INVALID_LOCATOR,
        help_text='keep the app in a module-level variable, or pass WorkerConfig(app_locator="package.module:app") '
        'or "package.module:create_app()"',
    )


def _limits(app: Horsies, config: WorkerConfig) -> in_hand.Limits:
    served = {queue.name: queue for queue in app.config.queues()}
    for name in config.queues or ():
        if name not in served:
            raise ConfigurationError(
                f"the worker is told to serve the queue {name!r}, but the app has no such queue",
                code=ErrorCode.CLI_INVALID_ARGS,
                help_text=f"the app's queues are: {', '.join(served)}",
            )
    queues = [(q.name, q.max_concurrency) for q in served.values() if config.queues is None or q.name in config.queues]
    return in_hand.Limits(
        queues=queues,
        cluster_cap=app.config.cluster_wide_cap,
        prefetch=app.config.prefetch_buffer,
        max_claim_batch=config.max_claim_batch,
        max_claim_per_worker=config.max_claim_per_worker,
        run_ahead_ms=config.run_ahead_ms,
        concurrency=config.concurrency or 1,
        max_held_bytes=config.max_held_bytes,
        shares={name: share for name, _ in queues if (share := served[name].share) is not None},
    )


class Code(NamedTuple):
    """What a worker runs. Workers of the same `team` have the same code and settings, so any of them can do what is
    shared (R-15)."""

    team: str
    known: Known
    catalogue: Catalogue = NOTHING  # what its tasks are sent with


@dataclass(frozen=True, slots=True)
class Identity:
    """`worker_id` is new on every start and constant for the life of the process (W-02)."""

    worker_id: str
    hostname: str
    pid: int
    boot_id: str | None
    pid_namespace: str | None
    process_start: int | None

    @property
    def liveness_key(self) -> int:
        return lock_key(worker_purpose(self.worker_id))


def identify() -> Identity:
    pid = os.getpid()
    hostname = socket.gethostname()
    # The id names the host for people; a host name that would not fit its column is cut, the hex digits keep it unique.
    return Identity(
        worker_id=f"{hostname[:200]}:{pid}:{secrets.token_hex(4)}",
        hostname=hostname,
        pid=pid,
        boot_id=_read("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_pid_namespace(),
        process_start=process_start(pid),
    )


def usable_processors() -> int:
    """How many processors this process may use: those it is bound to, and no more than its control group is allowed (a
    part of a processor counts as one)."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(bound, _quota(), MOST_CHILDREN)))


def _quota() -> float:
    """The processors that the control group of this process, or one above it, is allowed; infinite without a limit."""
    found = re.search(r"^0::/(.*)$", _read("/proc/self/cgroup") or "", re.MULTILINE)
    below = PurePosixPath(found.group(1) if found else "")
    groups = [Path("/sys/fs/cgroup") / part for part in (below, *below.parents)]
    allowed = [_read(str(group / "cpu.max")) for group in groups]
    older = [_read(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us") for name in ("quota", "period")]
    return min(map(cpu_limit, (*allowed, " ".join(filter(None, older)))))


def cpu_limit(text: str | None) -> float:
    """The processors that `quota period` stands for, both in microseconds; infinite if there is no quota."""
    quota, _, period = (text or "").partition(" ")
    if not (quota.isdigit() and period.isdigit()) or int(quota) == 0 or int(period) == 0:
        return math.inf
    return int(quota) / int(period)


def _pid_namespace() -> str | None:
    try:
        found = re.search(r"\d+", os.readlink("/proc/self/ns/pid"))
    except OSError:
        return None
    return found.group() if found else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
