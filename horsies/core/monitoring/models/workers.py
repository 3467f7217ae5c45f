"""Workers, and which of them answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from horsies.core.models.sweeping import ActiveWorker


@dataclass(frozen=True, slots=True)
class WorkerStateInfo:
    """A worker according to the registry and its newest snapshot.

    `is_live`: its last heartbeat is younger than three of its own intervals. Values from a snapshot are None or empty
    until there is one; `task_names` is None if the worker did not publish them.
    """

    worker_id: str
    is_live: bool
    hostname: str | None
    pid: int | None
    started_at: datetime
    last_heartbeat_at: datetime
    silence_seconds: float
    queues: tuple[str, ...]
    task_names: tuple[str, ...] | None
    processes: int | None
    tasks_running: int | None
    tasks_claimed: int | None
    cpu_percent: float | None
    memory_usage_mb: float | None
    memory_percent: float | None
    children_memory_mb: float | None
    max_claim_per_worker: int | None
    cluster_wide_cap: int | None
    queue_priorities: Mapping[str, int]
    queue_max_concurrency: Mapping[str, int | None]
    prefetch_buffer: int | None
    snapshot_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkerHistoryPoint:
    """One snapshot of a worker, as a point of a chart."""

    snapshot_at: datetime
    tasks_running: int | None
    tasks_claimed: int | None
    cpu_percent: float | None
    memory_usage_mb: float | None
    memory_percent: float | None
    children_memory_mb: float | None


@dataclass(frozen=True, slots=True)
class WorkerPingInfo:
    """A worker that answered."""

    worker_id: str
    hostname: str
    pid: int
    latency_ms: float


@dataclass(frozen=True, slots=True)
class LivenessReport:
    """Which workers answer right now, and which registered workers did not."""

    database_latency_ms: float
    workers: tuple[WorkerPingInfo, ...]
    silent: tuple[str, ...]


ActiveWorkerInfo: TypeAlias = ActiveWorker
