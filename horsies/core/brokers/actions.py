"""What a person does to one task: cancel it (M-48), send it again after it ended without success (M-49), or run it
before it is due (M-49d); and to one worker: ask it to drain (M-49c). Each is one guarded statement; if it changed
nothing, a second statement looks for the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from psycopg import AsyncConnection

from horsies.core.codec.serde import can_be_stored, serialize_error_payload
from horsies.core.db import facts_of
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.tasks import OutcomeCode, TaskError, TaskResult
from horsies.core.producer import enqueue, hub
from horsies.core.sql import stored
from horsies.core.store import many, reasons, workers
from horsies.core.types import Err, Ok, TaskStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker


TRIES = 5  # for a task that changes while it is looked at


class TaskActionErrorCode(StrEnum):
    """Why nothing was done."""

    TASK_NOT_FOUND = "TASK_NOT_FOUND"
    TASK_NOT_CANCELLABLE = "TASK_NOT_CANCELLABLE"
    TASK_IS_WORKFLOW_TASK = "TASK_IS_WORKFLOW_TASK"
    TASK_HAS_COMPLETED = "TASK_HAS_COMPLETED"
    TASK_HAS_NOT_ENDED = "TASK_HAS_NOT_ENDED"
    TASK_ALREADY_RERUN = "TASK_ALREADY_RERUN"
    TASK_NOT_WAITING = "TASK_NOT_WAITING"
    TASK_ALREADY_THERE = "TASK_ALREADY_THERE"
    TASK_IS_DUE = "TASK_IS_DUE"
    TASK_IS_HELD = "TASK_IS_HELD"
    TASK_REFUSED_BY_DATABASE = "TASK_REFUSED_BY_DATABASE"
    DB_OPERATION_FAILED = "DB_OPERATION_FAILED"


@dataclass(frozen=True, slots=True)
class TaskActionError:
    """An action that was not made."""

    code: TaskActionErrorCode
    message: str
    task_id: str
    current_status: TaskStatus | None = None
    retryable: bool = False
    exception: BaseException | None = None


@dataclass(frozen=True, slots=True)
class TaskCancelled:
    """The task is CANCELLED now; before that it was in `previous_status`."""

    task_id: str
    previous_status: TaskStatus
    queue_name: str = field(default="", compare=False)
    task_name: str = field(default="", compare=False)


TaskActionResult: TypeAlias = Ok[TaskCancelled] | Err[TaskActionError]


@dataclass(frozen=True, slots=True)
class TaskRerun:
    """The new task, and the one it repeats."""

    task_id: str
    rerun_of: str


TaskRerunResult: TypeAlias = Ok[TaskRerun] | Err[TaskActionError]


@dataclass(frozen=True, slots=True)
class TaskDue:
    """The task is due now; otherwise it would have been due at `was_due_at`."""

    task_id: str
    was_due_at: datetime


TaskDueResult: TypeAlias = Ok[TaskDue] | Err[TaskActionError]

CANCELLED = serialize_error_payload(
    TaskResult(err=TaskError(error_code=OutcomeCode.TASK_CANCELLED, message="the task was cancelled"))
)


async def cancel_task(broker: PostgresBroker, task_id: str, *, include_running: bool = False) -> TaskActionResult:
    """Cancel a task that has not ended. A running task is cancelled only with `include_running`; its code is then
    stopped."""
    return await broker.cancel_task_async(task_id, include_running=include_running)


async def cancel(conn: AsyncConnection[Any], task_id: str, *, include_running: bool) -> TaskActionResult:
    """PENDING, CLAIMED and, with `include_running`, RUNNING → CANCELLED."""
    while True:
        for moved in await many.cancel(conn, [task_id], CANCELLED, include_running=include_running):
            return Ok(TaskCancelled(task_id, moved.was, moved.queue_name, moved.task_name))
        found = (await many.states(conn, [task_id])).get(task_id)
        if not is_cancellable(found, include_running=include_running):
            return Err(why_not_cancelled(task_id, found))


class WorkerActionErrorCode(StrEnum):
    """Why nothing was done to a worker."""

    WORKER_NOT_FOUND = "WORKER_NOT_FOUND"
    DB_OPERATION_FAILED = "DB_OPERATION_FAILED"


@dataclass(frozen=True, slots=True)
class WorkerActionError:
    """An action on a worker that was not made."""

    code: WorkerActionErrorCode
    message: str
    worker_id: str
    retryable: bool = False
    exception: BaseException | None = None


@dataclass(frozen=True, slots=True)
class WorkerDraining:
    """The worker has been asked to drain."""

    worker_id: str
    requested_at: datetime


WorkerActionResult: TypeAlias = Ok[WorkerDraining] | Err[WorkerActionError]


async def drain_worker(broker: PostgresBroker, worker_id: str) -> WorkerActionResult:
    """Ask a worker to do what it does on SIGTERM: claim nothing more, finish its tasks, and leave (W-55)."""
    try:
        return await broker.bridge.call(partial(_drain, broker, worker_id))
    except Exception as problem:
        facts = facts_of(problem)
        facts["message"] = broker.config.redact(facts["message"])
        return Err(WorkerActionError(WorkerActionErrorCode.DB_OPERATION_FAILED, worker_id=worker_id, **facts))


async def _drain(broker: PostgresBroker, worker_id: str) -> WorkerActionResult:
    requested_at = None
    if can_be_stored(worker_id):
        async with broker.hub.connection() as conn:
            requested_at = await workers.drain(conn, worker_id)
    if requested_at is None:
        why = f"no worker {worker_id} is registered"
        return Err(WorkerActionError(WorkerActionErrorCode.WORKER_NOT_FOUND, why, worker_id))
    return Ok(WorkerDraining(worker_id, requested_at))


async def rerun_task(broker: PostgresBroker, task_id: str) -> TaskRerunResult:
    """Send a FAILED, CANCELLED or EXPIRED task again as a new task, due at once. The old row does not change."""
    try:
        return await broker.bridge.call(partial(_rerun, broker, task_id))
    except Exception as problem:
        return action_failed(task_id, problem, broker.config)


async def run_task_now(broker: PostgresBroker, task_id: str) -> TaskDueResult:
    """A waiting task that is due later, or is to be tried again later, is due at once. Its attempts stay counted."""
    try:
        return await broker.bridge.call(partial(_run_now, broker, task_id))
    except Exception as problem:
        return action_failed(task_id, problem, broker.config)


def action_failed(task_id: str, problem: BaseException, config: PostgresConfig) -> Err[TaskActionError]:
    facts = facts_of(problem)
    facts["message"] = config.redact(facts["message"])
    return Err(TaskActionError(TaskActionErrorCode.DB_OPERATION_FAILED, task_id=task_id, **facts))


def is_cancellable(found: Any, *, include_running: bool) -> bool:
    """Whether a task can be cancelled; `found` is its state and its workflow. If it could not a moment ago, it appeared
    or came back between two statements: there is no reason to report, so cancelling is tried again."""
    if found is None or found[1] is not None:
        return False
    return found[0] in ("PENDING", "CLAIMED") or (found[0] == "RUNNING" and include_running)


def why_not_cancelled(task_id: str, found: Any) -> TaskActionError:
    """Why a task was not cancelled; `found` is its state and its workflow."""
    if found is None:
        return TaskActionError(TaskActionErrorCode.TASK_NOT_FOUND, f"there is no task {task_id}", task_id)
    status, workflow_id = stored(TaskStatus, found[0]), found[1]
    if workflow_id is not None:
        why = f"task {task_id} belongs to workflow {workflow_id}; cancel the workflow"
        return TaskActionError(TaskActionErrorCode.TASK_IS_WORKFLOW_TASK, why, task_id, status)
    hint = "; include_running=True stops it" if status is TaskStatus.RUNNING else ""
    why = f"task {task_id} is {status.value}{hint}"
    return TaskActionError(TaskActionErrorCode.TASK_NOT_CANCELLABLE, why, task_id, status)


async def _rerun(broker: PostgresBroker, task_id: str) -> TaskRerunResult:
    if not hub.can_exist(task_id):
        return Err(why_not(task_id, None))
    async with broker.hub.connection() as conn:
        once = True  # the first copy has the key that follows from the task, so that others see that it was sent again
        while not await many.rerun(conn, [task_id], [new_id := enqueue.new_task_id()], once=once):
            found = (await many.states(conn, [task_id])).get(task_id)
            if not can_be_rerun(found):
                return Err(why_not(task_id, found))
            once = False
    return Ok(TaskRerun(new_id, task_id))


def can_be_rerun(found: tuple[Any, ...] | None) -> bool:
    """Whether a task can be sent again. If it could not a moment ago, it ended between two statements: there is no
    reason to report, so copying is tried again."""
    return found is not None and found[1] is None and found[0] in ("FAILED", "CANCELLED", "EXPIRED")


def why_not(task_id: str, found: tuple[Any, ...] | None) -> TaskActionError:
    """Why a task is not sent again; `found` is its state and its workflow."""
    if found is None:
        return TaskActionError(TaskActionErrorCode.TASK_NOT_FOUND, f"there is no task {task_id}", task_id)
    status, workflow_id = stored(TaskStatus, found[0]), found[1]
    if workflow_id is not None:
        why = f"task {task_id} belongs to workflow {workflow_id}; retry the node there"
        return TaskActionError(TaskActionErrorCode.TASK_IS_WORKFLOW_TASK, why, task_id, status)
    if status is TaskStatus.COMPLETED:
        why = f"task {task_id} has succeeded; send a new task to run it again"
        return TaskActionError(TaskActionErrorCode.TASK_HAS_COMPLETED, why, task_id, status)
    why = f"task {task_id} is {status.value}: only a task that has ended can be sent again"
    return TaskActionError(TaskActionErrorCode.TASK_HAS_NOT_ENDED, why, task_id, status)


async def _run_now(broker: PostgresBroker, task_id: str) -> TaskDueResult:
    facts = None
    if hub.can_exist(task_id):
        async with broker.hub.connection() as conn:
            for _ in range(TRIES):
                if was_due := (await many.run_now(conn, [task_id])).get(task_id):
                    return Ok(TaskDue(task_id, was_due))
                facts = await reasons.task_facts(conn, task_id)
                if facts is None or why_not_run(facts) is not None:
                    break
    if facts is None:
        return Err(TaskActionError(TaskActionErrorCode.TASK_NOT_FOUND, f"there is no task {task_id}", task_id))
    code, why = why_not_run(facts) or (TaskActionErrorCode.TASK_NOT_WAITING, "changes all the time")
    return Err(TaskActionError(code, f"task {task_id} {why}", task_id, stored(TaskStatus, facts.status)))


def why_not_run(task: reasons.TaskFacts) -> tuple[TaskActionErrorCode, str] | None:
    """Why a task is not made due. None: it could be, and came to that between two statements, so it is tried again."""
    if task.status != TaskStatus.PENDING:
        return TaskActionErrorCode.TASK_NOT_WAITING, f"is {task.status}: only a waiting task can be run now"
    if task.good_until is not None and task.good_until <= task.now:
        return TaskActionErrorCode.TASK_NOT_WAITING, "has passed its deadline, and will be EXPIRED"
    if task.workflow_id is not None and task.workflow_status not in ("PENDING", "RUNNING"):
        why = f"is held: its workflow {task.workflow_id} is {task.workflow_status or 'gone'}"
        return TaskActionErrorCode.TASK_IS_HELD, why
    if max(task.enqueued_at, task.next_retry_at or task.enqueued_at) <= task.now:
        return TaskActionErrorCode.TASK_IS_DUE, "is due already: a worker takes it as soon as one has room"
    return None
