"""What a person does to tasks: cancel them (M-48), send them again after they ended without success (M-49), or run them
before they are due (M-49d); and to a worker: ask it to drain (M-49c).

An action on one task is the action on many with a single id (`monitoring/many.py` adds groups of them). Each statement
checks the state of each task itself, so two people, or a person and a worker, never both act on the same state of a
task. A task that a statement does not apply to is left alone, and a second statement looks for the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from horsies.core.codec.serde import can_be_stored, serialize_error_payload
from horsies.core.db import Connection, Refused, as_result, by_halves, describe, facts_of, is_about_content
from horsies.core.models.failures import OperationFailed
from horsies.core.models.tasks import OutcomeCode, TaskError, TaskResult
from horsies.core.producer.enqueue import new_task_ids
from horsies.core.producer.hub import can_exist
from horsies.core.store import many, rollup, workers
from horsies.core.store.many import TaskState
from horsies.core.types import Err, Ok, TaskStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker


R = TypeVar("R")


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
class TaskActionError(OperationFailed):
    """An action that was not made."""

    code: TaskActionErrorCode
    task_id: str
    current_status: TaskStatus | None = None


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
ENDED = (TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.EXPIRED)  # without success


class Action(Generic[R]):
    """What is done to tasks. A task that it was not done to, although there is no reason against it, came to that state
    between two statements: it is tried again, `tries` times in all. What is left then is `stuck`."""

    tries = 5
    stuck = TaskActionErrorCode.TASK_NOT_WAITING
    of_workflow: str | None = "is a matter of that"  # what to do about a task of a workflow instead; None: the same

    async def apply(self, conn: Connection, ids: Sequence[str]) -> dict[str, R]:
        """Do it to those of these tasks that are in a state for it."""
        raise NotImplementedError

    def problem(self, state: TaskState) -> tuple[TaskActionErrorCode, str] | None:
        """Why it is not done to a task in this state; None if it is."""
        raise NotImplementedError

    def refusal(self, task_id: str, state: TaskState | None) -> TaskActionError | None:
        """The same as an error, also of a task that does not exist or belongs to a workflow."""
        if state is None:
            return TaskActionError(TaskActionErrorCode.TASK_NOT_FOUND, f"there is no task {task_id}", task_id)
        problem = self.problem(state)
        if state.workflow_id is not None and self.of_workflow is not None:
            why = f"belongs to workflow {state.workflow_id}; {self.of_workflow}"
            problem = TaskActionErrorCode.TASK_IS_WORKFLOW_TASK, why
        if problem is None:
            return None
        return TaskActionError(problem[0], f"task {task_id} {problem[1]}", task_id, state.status)

    async def refusals(self, conn: Connection, ids: Sequence[str]) -> dict[str, TaskActionError | None]:
        """Why it was not, or would not be, done to these tasks."""
        states = await many.states(conn, filter(can_exist, ids))
        return {task_id: self.refusal(task_id, states.get(task_id)) for task_id in ids}


@dataclass(frozen=True)
class Cancel(Action[TaskCancelled]):
    """PENDING, CLAIMED and, with `include_running`, RUNNING → CANCELLED."""

    include_running: bool = False
    stuck = TaskActionErrorCode.TASK_NOT_CANCELLABLE
    of_workflow = "cancel the workflow"

    @property
    def statuses(self) -> tuple[TaskStatus, ...]:
        running = (TaskStatus.RUNNING,) if self.include_running else ()
        return (TaskStatus.PENDING, TaskStatus.CLAIMED, *running)

    def problem(self, state: TaskState) -> tuple[TaskActionErrorCode, str] | None:
        if state.status in self.statuses:
            return None
        hint = "; include_running=True stops it" if state.status is TaskStatus.RUNNING else ""
        return TaskActionErrorCode.TASK_NOT_CANCELLABLE, f"is {state.status.value}{hint}"

    async def apply(self, conn: Connection, ids: Sequence[str]) -> dict[str, TaskCancelled]:
        cancelled = await many.cancel(conn, ids, CANCELLED, include_running=self.include_running)
        await rollup.count_cancelled(conn, cancelled)
        return {task.id: TaskCancelled(*task) for task in cancelled}


@dataclass(frozen=True)
class Rerun(Action[TaskRerun]):
    """A task that ended without success is sent again as a new one. The first copy has a key that follows from the
    task, so that others see that it was sent again; unless `once`, there may be more copies."""

    once: bool = False
    statuses = ENDED
    tries = 2  # it may have ended just then
    stuck = TaskActionErrorCode.TASK_ALREADY_RERUN
    of_workflow = "retry the node there"

    def problem(self, state: TaskState) -> tuple[TaskActionErrorCode, str] | None:
        if state.status is TaskStatus.COMPLETED:
            return TaskActionErrorCode.TASK_HAS_COMPLETED, "has succeeded; send a new task to run it again"
        if state.status in ENDED:
            return None
        why = f"is {state.status.value}: only a task that has ended can be sent again"
        return TaskActionErrorCode.TASK_HAS_NOT_ENDED, why

    async def apply(self, conn: Connection, ids: Sequence[str]) -> dict[str, TaskRerun]:
        new_ids = new_task_ids()
        copies = await many.rerun(conn, ids, list(islice(new_ids, len(ids))), once=True)
        if not self.once and (left := [task_id for task_id in ids if task_id not in copies]):
            copies |= await many.rerun(conn, left, list(islice(new_ids, len(left))))
        return {task_id: TaskRerun(new_id, task_id) for task_id, new_id in copies.items()}


class RunNow(Action[TaskDue]):
    """A waiting task that is due later is due now, also one of a workflow."""

    of_workflow = None

    async def apply(self, conn: Connection, ids: Sequence[str]) -> dict[str, TaskDue]:
        return {task_id: TaskDue(task_id, due) for task_id, due in (await many.run_now(conn, ids)).items()}

    def problem(self, state: TaskState) -> tuple[TaskActionErrorCode, str] | None:
        if state.status is not TaskStatus.PENDING:
            return TaskActionErrorCode.TASK_NOT_WAITING, f"is {state.status}: only a waiting task can be run now"
        if state.is_overdue:
            return TaskActionErrorCode.TASK_NOT_WAITING, "has passed its deadline, and will be EXPIRED"
        if state.workflow_id is not None and state.workflow_status not in ("PENDING", "RUNNING"):
            why = f"is held: its workflow {state.workflow_id} is {state.workflow_status or 'gone'}"
            return TaskActionErrorCode.TASK_IS_HELD, why
        if state.is_due:
            return TaskActionErrorCode.TASK_IS_DUE, "is due already: a worker takes it as soon as one has room"
        return None


async def act(
    conn: Connection, action: Action[R], ids: Sequence[str]
) -> tuple[dict[str, R], dict[str, TaskActionError]]:
    """Do it to these tasks: what became of those that it was done to, and why it was not done to the others."""
    done: dict[str, R] = {}
    refused: dict[str, TaskActionError] = {}

    def give_up(task_id: str, problem: Exception) -> None:
        code = TaskActionErrorCode.TASK_REFUSED_BY_DATABASE
        refused[task_id] = TaskActionError(code, f"task {task_id}: {describe(problem)}", task_id, exception=problem)

    left = list(ids)
    for _ in range(action.tries):
        for some in await by_halves(left, partial(action.apply, conn), is_refusal=is_about_content, give_up=give_up):
            done |= some
        left = [task_id for task_id in left if task_id not in done and task_id not in refused]
        if not left:
            break
        found = await action.refusals(conn, left)
        refused |= {task_id: refusal for task_id, refusal in found.items() if refusal is not None}
        left = [task_id for task_id in left if task_id not in refused]
    for task_id in left:
        refused[task_id] = TaskActionError(action.stuck, f"task {task_id} changes all the time", task_id)
    return done, refused


@as_result(
    lambda problem, broker, _, task_id: TaskActionError(
        TaskActionErrorCode.DB_OPERATION_FAILED, task_id=task_id, **facts_of(problem, broker.config)
    )
)
async def act_on_one(broker: PostgresBroker, action: Action[R], task_id: str) -> R:
    """The same for one task, and what goes wrong as a value."""

    async def alone() -> tuple[dict[str, R], dict[str, TaskActionError]]:
        async with broker.hub.connection() as conn:
            return await act(conn, action, [task_id])

    if not can_exist(task_id):
        raise Refused(action.refusal(task_id, None))
    done, refused = await broker.bridge.call(alone)
    if task_id in refused:
        raise refused[task_id].exception or Refused(refused[task_id])
    return done[task_id]


async def cancel_task(broker: PostgresBroker, task_id: str, *, include_running: bool = False) -> TaskActionResult:
    """Cancel a task that has not ended. A running task is cancelled only with `include_running`; its code is then
    stopped."""
    return await broker.cancel_task_async(task_id, include_running=include_running)


async def rerun_task(broker: PostgresBroker, task_id: str) -> TaskRerunResult:
    """Send a FAILED, CANCELLED or EXPIRED task again as a new task, due at once. The old row does not change."""
    return await act_on_one(broker, Rerun(), task_id)


async def run_task_now(broker: PostgresBroker, task_id: str) -> TaskDueResult:
    """A waiting task that is due later, or is to be tried again later, is due at once. Its attempts stay counted."""
    return await act_on_one(broker, RunNow(), task_id)


class WorkerActionErrorCode(StrEnum):
    """Why nothing was done to a worker."""

    WORKER_NOT_FOUND = "WORKER_NOT_FOUND"
    DB_OPERATION_FAILED = "DB_OPERATION_FAILED"


@dataclass(frozen=True, slots=True)
class WorkerActionError(OperationFailed):
    """An action on a worker that was not made."""

    code: WorkerActionErrorCode
    worker_id: str


@dataclass(frozen=True, slots=True)
class WorkerDraining:
    """The worker has been asked to drain."""

    worker_id: str
    requested_at: datetime


WorkerActionResult: TypeAlias = Ok[WorkerDraining] | Err[WorkerActionError]


@as_result(
    lambda problem, broker, worker_id: WorkerActionError(
        WorkerActionErrorCode.DB_OPERATION_FAILED, worker_id=worker_id, **facts_of(problem, broker.config)
    )
)
async def drain_worker(broker: PostgresBroker, worker_id: str) -> WorkerDraining:
    """Ask a worker to do what it does on SIGTERM: claim nothing more, finish its tasks, and leave (W-55)."""

    async def drain() -> datetime | None:
        async with broker.hub.connection() as conn:
            return await workers.drain(conn, worker_id)

    requested_at = await broker.bridge.call(drain) if can_be_stored(worker_id) else None
    if requested_at is None:
        why = f"no worker {worker_id} is registered"
        raise Refused(WorkerActionError(WorkerActionErrorCode.WORKER_NOT_FOUND, why, worker_id))
    return WorkerDraining(worker_id, requested_at)
