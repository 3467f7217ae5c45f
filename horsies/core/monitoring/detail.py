"""Queries about one task, about workers and about schedules (M-45, M-47)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from horsies.core.brokers.hub import can_exist
from horsies.core.models.app import AppConfig
from horsies.core.models.broker import BrokerOperationError
from horsies.core.monitoring.asking import ask
from horsies.core.monitoring.filters import BadQuestion, checked_limit, checked_seconds, checked_text
from horsies.core.monitoring.models.answers import MonitoringErrorCode, MonitoringQueryError, MonitoringResult
from horsies.core.monitoring.models.snapshots import ScheduleStateInfo
from horsies.core.monitoring.models.tasks import TaskDetail
from horsies.core.monitoring.models.workers import (
    ActiveWorkerInfo,
    LivenessReport,
    WorkerHistoryPoint,
    WorkerPingInfo,
    WorkerStateInfo,
)
from horsies.core.recovery.worker_utils import WorkerUtils
from horsies.core.store import monitoring
from horsies.core.store.tasks import Connection
from horsies.core.types.result import Err, Ok

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

MOST_WORKERS = 10_000
MOST_SCHEDULES = 20_000


async def get_task_detail(broker: PostgresBroker, task_id: str) -> MonitoringResult[TaskDetail | None]:
    """A task with all its columns and attempts; `Ok(None)` if there is no such row."""

    async def look(conn: Connection) -> TaskDetail | None:
        return await monitoring.task_detail(conn, task_id) if can_exist(task_id) else None

    return await ask(broker, look)


async def list_schedules(broker: PostgresBroker) -> MonitoringResult[tuple[ScheduleStateInfo, ...]]:
    """Every schedule that a scheduler has seen or that was added at run time, by name."""

    firing = None if broker.app is None else firing_schedules(broker.app.config)

    async def look(conn: Connection) -> tuple[ScheduleStateInfo, ...]:
        return judged(await monitoring.schedules(conn, most=MOST_SCHEDULES), firing)

    return await ask(broker, look)


def firing_schedules(config: AppConfig) -> frozenset[str]:
    """The active schedules of the code."""
    if config.schedule is None:
        return frozenset()
    return frozenset(one.name for one in config.schedule.schedules if one.enabled and config.schedule.enabled)


def judged(schedules: Sequence[ScheduleStateInfo], firing: frozenset[str] | None) -> tuple[ScheduleStateInfo, ...]:
    """A schedule that is no longer in the code, or is disabled there, keeps its state (S-38), but is not late."""
    return tuple(
        replace(one, is_active=False, lag_seconds=0.0)
        if one.source == "code" and firing is not None and one.name not in firing
        else one
        for one in schedules
    )


async def list_workers(broker: PostgresBroker) -> MonitoringResult[tuple[WorkerStateInfo, ...]]:
    """Every registered worker with its newest snapshot, the oldest worker first."""

    async def look(conn: Connection) -> tuple[WorkerStateInfo, ...]:
        return await monitoring.workers(conn, most=MOST_WORKERS)

    return await ask(broker, look)


async def get_worker_history(
    broker: PostgresBroker, worker_id: str, *, limit: int = 500
) -> MonitoringResult[tuple[WorkerHistoryPoint, ...]]:
    """The newest snapshots of a worker, oldest first."""

    async def look(conn: Connection) -> tuple[WorkerHistoryPoint, ...]:
        return await monitoring.worker_history(conn, checked_text("worker_id", worker_id), limit=checked_limit(limit))

    return await ask(broker, look)


async def list_active_workers(
    broker: PostgresBroker, *, threshold_seconds: float = 300
) -> MonitoringResult[tuple[ActiveWorkerInfo, ...]]:
    """Every registered worker; a worker is stale if its last heartbeat is older than the threshold (R-43)."""
    try:
        checked_seconds("threshold_seconds", threshold_seconds)
    except BadQuestion as problem:
        return _wrong(problem)
    listed = await WorkerUtils(broker).list_active_workers(threshold_seconds)
    return Ok(tuple(listed.value)) if isinstance(listed, Ok) else _failed(listed.error)


async def ping(broker: PostgresBroker, *, timeout_seconds: float = 2.0) -> MonitoringResult[LivenessReport]:
    """Which workers answer in time, and which registered workers do not; it ends early if all have answered."""
    try:
        checked_seconds("timeout_seconds", timeout_seconds)
    except BadQuestion as problem:
        return _wrong(problem)
    workers = await list_workers(broker)
    if not isinstance(workers, Ok):
        return workers
    database = await broker.ping_database_async()
    if not isinstance(database, Ok):
        return _failed(database.error)
    known = {worker.worker_id for worker in workers.value}
    pongs = await broker.ping_workers_async(None, timeout_seconds, max(1, len(known)))
    if not isinstance(pongs, Ok):
        return _failed(pongs.error)
    answers = tuple(WorkerPingInfo(pong.worker_id, pong.hostname, pong.pid, pong.latency_ms) for pong in pongs.value)
    silent = sorted(known - {pong.worker_id for pong in answers})
    return Ok(LivenessReport(database.value.latency_ms, answers, tuple(silent)))


def _wrong(problem: BadQuestion) -> Err[MonitoringQueryError]:
    return Err(MonitoringQueryError(MonitoringErrorCode.INVALID_ARGUMENT, str(problem)))


def _failed(error: BrokerOperationError) -> Err[MonitoringQueryError]:
    return Err(MonitoringQueryError(MonitoringErrorCode.DB_OPERATION_FAILED, error.message, error.retryable))
