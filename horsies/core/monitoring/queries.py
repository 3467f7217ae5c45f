"""The query API (M-45, M-47): workflows and their nodes, workers and schedules; tasks are in `task_queries.py`. Each
query runs on the broker's own loop, in one read-only transaction with a time limit, and every failure is returned as a
value. Reading blocks no writer. `store/monitoring.py` has the statements.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg import errors

from horsies.core.db import Connection, Refused, as_result, describe, is_transient
from horsies.core.models.app import AppConfig
from horsies.core.models.broker import BrokerOperationError
from horsies.core.models.failures import OperationFailed
from horsies.core.models.monitoring import cluster, tasks
from horsies.core.monitoring import filters
from horsies.core.producer.hub import can_exist
from horsies.core.recovery.utils import WorkerUtils
from horsies.core.store import monitoring
from horsies.core.types import Err, Ok, WorkflowStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker


PATIENCE = timedelta(seconds=15)
EXACT_PATIENCE = timedelta(minutes=5)
LOOK = 10_000  # workflows in each index
MOST_NAMES = 1_000
MOST_NODES = 10_000
MOST_EDGES = 50_000
LARGEST_INDEX = 2**31 - 1
MOST_WORKERS = 10_000
MOST_SCHEDULES = 20_000
LONGEST_WINDOW_S = 365 * 86_400.0
T = TypeVar("T")


async def list_workflow_names(broker: PostgresBroker) -> tasks.MonitoringResult[tuple[str, ...]]:
    """The names of all workflows, sorted."""

    async def look(conn: Connection) -> tuple[str, ...]:
        return await monitoring.workflow_names(conn, most=MOST_NAMES)

    return await ask(broker, look)


async def list_workflow_runs(
    broker: PostgresBroker,
    *,
    name: str | None = None,
    status: WorkflowStatus | str | None = None,
    limit: int = filters.DEFAULT_LIMIT,
) -> tasks.MonitoringResult[tuple[tasks.WorkflowRunSummary, ...]]:
    """Workflows: active ones first, newest first; then ended ones, last ended first. In each index (name, state, end)
    at most `LOOK` workflows are looked at."""

    async def look(conn: Connection) -> tuple[tasks.WorkflowRunSummary, ...]:
        [wanted] = filters.members(WorkflowStatus, "status", [status]) or [None] if status is not None else [None]
        named = None if name is None else filters.checked_text("name", name)
        most = filters.checked_limit(limit)
        return await monitoring.list_workflows(conn, name=named, status=wanted, limit=most, look=LOOK)

    return await ask(broker, look)


async def get_workflow_run(
    broker: PostgresBroker, workflow_id: str
) -> tasks.MonitoringResult[tasks.WorkflowRunDetail | None]:
    """A workflow with its nodes, edges and failed indexes; `Ok(None)` if there is no such row."""

    async def look(conn: Connection) -> tasks.WorkflowRunDetail | None:
        found = await monitoring.workflow(conn, workflow_id) if can_exist(workflow_id) else None
        if found is None:
            return None
        run, rest = found
        return tasks.WorkflowRunDetail(
            run,
            **rest,
            nodes=await monitoring.nodes(conn, workflow_id, most=MOST_NODES),
            edges=await monitoring.edges(conn, workflow_id, most=MOST_EDGES),
            failed_indexes=await monitoring.failed_nodes(conn, workflow_id, most=MOST_NODES),
        )

    return await ask(broker, look)


async def get_workflow_node(
    broker: PostgresBroker, workflow_id: str, task_index: int
) -> tasks.MonitoringResult[tasks.WorkflowTaskDetail | None]:
    """A node in full and its current task; `Ok(None)` if there is no such node."""

    async def look(conn: Connection) -> tasks.WorkflowTaskDetail | None:
        if isinstance(task_index, bool) or not isinstance(task_index, int):
            raise filters.BadQuestion(f"the index of a node must be a whole number, not {task_index!r}")
        if not can_exist(workflow_id) or not 0 <= task_index <= LARGEST_INDEX:
            return None
        found = await monitoring.node(conn, workflow_id, task_index)
        if found is None:
            return None
        node, rest = found
        for name in ("dependencies", "dependents", "workflow_ctx_from", "previous_task_ids"):
            rest[name] = None if rest[name] is None else tuple(rest[name])
        task = None if node.task_id is None else await monitoring.task_detail(conn, node.task_id)
        return tasks.WorkflowTaskDetail(workflow_id, node, **rest, task=task)

    return await ask(broker, look)


async def list_schedules(broker: PostgresBroker) -> tasks.MonitoringResult[tuple[cluster.ScheduleStateInfo, ...]]:
    """Every schedule that a scheduler has seen or that was added at run time, by name."""

    firing = None if broker.app is None else firing_schedules(broker.app.config)

    async def look(conn: Connection) -> tuple[cluster.ScheduleStateInfo, ...]:
        return judged(await monitoring.schedules(conn, most=MOST_SCHEDULES), firing)

    return await ask(broker, look)


def firing_schedules(config: AppConfig) -> frozenset[str]:
    """The active schedules of the code."""
    if config.schedule is None:
        return frozenset()
    return frozenset(one.name for one in config.schedule.schedules if one.enabled and config.schedule.enabled)


def judged(
    schedules: Sequence[cluster.ScheduleStateInfo], firing: frozenset[str] | None
) -> tuple[cluster.ScheduleStateInfo, ...]:
    """A schedule that is no longer in the code, or is disabled there, keeps its state (S-38), but is not late."""
    return tuple(
        replace(one, is_active=False, lag_seconds=0.0)
        if one.source == "code" and firing is not None and one.name not in firing
        else one
        for one in schedules
    )


async def list_workers(broker: PostgresBroker) -> tasks.MonitoringResult[tuple[cluster.WorkerStateInfo, ...]]:
    """Every registered worker with its newest snapshot, the oldest worker first."""

    async def look(conn: Connection) -> tuple[cluster.WorkerStateInfo, ...]:
        return await monitoring.workers(conn, most=MOST_WORKERS)

    return await ask(broker, look)


async def get_worker_history(
    broker: PostgresBroker, worker_id: str, *, limit: int = 500, window_seconds: float | None = None
) -> tasks.MonitoringResult[tuple[cluster.WorkerHistoryPoint, ...]]:
    """The newest snapshots of a worker, oldest first. With a window, at most so many that are spread over that time."""

    async def look(conn: Connection) -> tuple[cluster.WorkerHistoryPoint, ...]:
        known, most = filters.checked_text("worker_id", worker_id), filters.checked_limit(limit)
        if window_seconds is None:
            return await monitoring.worker_history(conn, known, limit=most)
        seconds = min(filters.checked_seconds("window_seconds", window_seconds), LONGEST_WINDOW_S)
        return await monitoring.worker_history_within(conn, known, seconds=seconds, parts=most)

    return await ask(broker, look)


def no_answer(problem: Exception, broker: PostgresBroker, *_: Any, **__: Any) -> tasks.MonitoringQueryError:
    """The error value for what was raised."""
    if isinstance(problem, filters.BadQuestion):
        return tasks.MonitoringQueryError(tasks.MonitoringErrorCode.INVALID_ARGUMENT, str(problem))
    code, message = tasks.MonitoringErrorCode.DB_OPERATION_FAILED, broker.config.redact(describe(problem))
    return tasks.MonitoringQueryError(code, message, retryable=is_transient(problem))


@as_result(no_answer)
async def list_active_workers(
    broker: PostgresBroker, *, threshold_seconds: float = 300
) -> tuple[cluster.ActiveWorkerInfo, ...]:
    """Every registered worker; a worker is stale if its last heartbeat is older than the threshold (R-43)."""
    filters.checked_seconds("threshold_seconds", threshold_seconds)
    return tuple(_answer(await WorkerUtils(broker).list_active_workers(threshold_seconds)))


@as_result(no_answer)
async def ping(broker: PostgresBroker, *, timeout_seconds: float = 2.0) -> cluster.LivenessReport:
    """Which workers answer in time, and which registered workers do not; it ends early if all have answered."""
    filters.checked_seconds("timeout_seconds", timeout_seconds)
    known = {worker.worker_id for worker in _answer(await list_workers(broker))}
    database = _answer(await broker.ping_database_async())
    pongs = _answer(await broker.ping_workers_async(None, timeout_seconds, max(1, len(known))))
    answers = tuple(cluster.WorkerPingInfo(pong.worker_id, pong.hostname, pong.pid, pong.latency_ms) for pong in pongs)
    silent = sorted(known - {pong.worker_id for pong in answers})
    return cluster.LivenessReport(database.latency_ms, answers, tuple(silent))


def _answer(result: Ok[T] | Err[BrokerOperationError] | Err[tasks.MonitoringQueryError]) -> T:
    if isinstance(result, Ok):
        return result.value
    error: OperationFailed = result.error
    if isinstance(error, BrokerOperationError):
        code = tasks.MonitoringErrorCode.DB_OPERATION_FAILED
        error = tasks.MonitoringQueryError(code, error.message, retryable=error.retryable)
    raise Refused(error)


@as_result(no_answer)
async def ask(
    broker: PostgresBroker,
    question: Callable[[Connection], Awaitable[T]],
    *,
    exact: bool = False,
    patience: timedelta | None = None,
) -> T:
    """The answer. All statements of a query see the same moment. With `exact`, they may read all rows, which takes
    longer."""
    patience = patience or (EXACT_PATIENCE if exact else PATIENCE)
    try:
        return await broker.bridge.call(partial(_in_transaction, broker, question, exact, patience))
    except errors.QueryCanceled as problem:
        code, message = tasks.MonitoringErrorCode.QUERY_TIMEOUT, _cancelled(problem, exact, patience)
        error = tasks.MonitoringQueryError(code, broker.config.redact(message), retryable=True)
        raise Refused(error) from problem


async def _in_transaction(
    broker: PostgresBroker, question: Callable[[Connection], Awaitable[T]], exact: bool, patience: timedelta
) -> T:
    async with broker.hub.connection() as conn, conn.transaction():
        await conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await monitoring.settle(conn, patience, reads_all=exact)
        return await question(conn)


def _cancelled(problem: errors.QueryCanceled, exact: bool, patience: timedelta) -> str:
    seconds = f"{patience.total_seconds():g}"
    if exact:
        return (
            f"exact numbers took longer than {seconds} s: ask without exact, or for fewer tasks ({describe(problem)})"
        )
    return f"there was no answer within {seconds} s, the server is very slow ({describe(problem)})"
