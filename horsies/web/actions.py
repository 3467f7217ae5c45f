"""What can be changed through the dashboard, as a table of routes (M-63). Every change goes through `perform`, which
writes down who wanted what on which ids, and what came of it (M-94).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from horsies import monitoring
from horsies.core.models.recovery import LONGEST, SweepStaleWorkersOptions, SweepStaleWorkersResult
from horsies.core.models.workflow.results import HandleErrorCode, HandleResult
from horsies.core.monitoring import audit
from horsies.core.recovery.utils import WorkerUtils
from horsies.core.text import counted, visible
from horsies.core.types import Err, Ok, WorkflowStatus
from horsies.core.workflows import control, read
from horsies.monitoring import (
    BulkResult,
    TaskActionErrorCode,
    TaskCancelled,
    TaskDue,
    TaskRerun,
    WorkerActionErrorCode,
    WorkerDraining,
)
from horsies.web.answers import Refusal, not_answered, not_done
from horsies.web.api import TASK_ID, WORKFLOW_ID
from horsies.web.endpoints import Asked, Endpoint, Param, Text, Texts

log = logging.getLogger("horsies.web")
T = TypeVar("T")


async def perform(
    asked: Asked,
    action: str,
    targets: Sequence[str],
    do: Callable[[], Awaitable[T]],
    *,
    ids_of: Callable[[T], Sequence[str]] | None = None,
    details_of: Callable[[T], Mapping[str, Any]] | None = None,
    **details: Any,
) -> T:
    """Every change (M-94). What cannot be written down is not done, and a refusal is written down too. `ids_of` and
    `details_of` say what is known only from the answer."""

    async def attempt() -> Ok[T] | Err[Refusal]:
        try:
            return Ok(await do())
        except Refusal as refusal:
            return Err(refusal)

    deed = audit.Deed(asked.dashboard.actor(asked.request), action, action.partition(".")[0], targets, details)
    broker = asked.dashboard.acting_broker
    try:
        result = await audit.audited(broker, deed, attempt, ids_of=ids_of, details_of=details_of)
    except BaseException:  # also if nobody waits for it any more
        _log(deed, len(targets), "failed")
        raise
    if isinstance(result, Ok):
        _log(deed, _number(result.value, targets), "done")
        return result.value
    problem = result.error if isinstance(result.error, Refusal) else not_answered(result.error)
    _log(deed, len(targets), f"not done, {problem.code}")
    raise problem


def _log(deed: audit.Deed, number: int, outcome: str) -> None:
    """Who did what on how many, and how it ended (M-63). What it was done to is in the audit, and may be secret."""
    log.info("%s: %s on %s: %s", visible(deed.actor), deed.action, counted(number, deed.target_kind), outcome)


def _number(value: Any, targets: Sequence[str]) -> int:
    if isinstance(value, BulkResult):
        return value.changed
    return len(value.worker_ids) if isinstance(value, SweepStaleWorkersResult) else len(targets)


@dataclass(frozen=True, slots=True)
class WorkflowActionDone:
    """The workflow was paused, resumed, cancelled or retried. `status` is its state after that, in which a resume or a
    retry may have ended it; None if that could not be read."""

    workflow_id: str
    action: Literal["pause", "resume", "cancel", "retry"]
    status: WorkflowStatus | None = None


async def cancel_task(asked: Asked, *, task_id: str, include_running: bool) -> TaskCancelled:
    async def do() -> TaskCancelled:
        broker = asked.dashboard.acting_broker
        return _task_value(await monitoring.cancel_task(broker, task_id, include_running=include_running))

    return await perform(asked, "task.cancel", (task_id,), do, include_running=include_running)


async def rerun_task(asked: Asked, *, task_id: str) -> TaskRerun:
    async def do() -> TaskRerun:
        return _task_value(await monitoring.rerun_task(asked.dashboard.acting_broker, task_id))

    def new_id(done: TaskRerun) -> dict[str, str]:
        return {"new_task_id": done.task_id}

    return await perform(asked, "task.rerun", (task_id,), do, details_of=new_id)


async def run_task_now(asked: Asked, *, task_id: str) -> TaskDue:
    async def do() -> TaskDue:
        return _task_value(await monitoring.run_task_now(asked.dashboard.acting_broker, task_id))

    return await perform(asked, "task.run_now", (task_id,), do)


async def pause_workflow(asked: Asked, *, workflow_id: str) -> WorkflowActionDone:
    async def do() -> WorkflowActionDone:
        moved = _workflow_value(asked, await control.pause_workflow(asked.dashboard.acting_broker, workflow_id))
        _refuse_unless(moved, "WORKFLOW_NOT_RUNNING", "the workflow is not running")
        return await _workflow_done(asked, workflow_id, "pause")

    return await perform(asked, "workflow.pause", (workflow_id,), do)


async def resume_workflow(asked: Asked, *, workflow_id: str) -> WorkflowActionDone:
    async def do() -> WorkflowActionDone:
        moved = _workflow_value(asked, await control.resume_workflow(asked.dashboard.acting_broker, workflow_id))
        _refuse_unless(moved, "WORKFLOW_NOT_PAUSED", "the workflow is not paused")
        return await _workflow_done(asked, workflow_id, "resume")

    return await perform(asked, "workflow.resume", (workflow_id,), do)


async def cancel_workflow(asked: Asked, *, workflow_id: str) -> WorkflowActionDone:
    async def do() -> WorkflowActionDone:
        moved = _workflow_value(asked, await control.cancel_workflow(asked.dashboard.acting_broker, workflow_id))
        _refuse_unless(moved, "WORKFLOW_HAS_ENDED", "the workflow has ended already")
        return await _workflow_done(asked, workflow_id, "cancel")

    return await perform(asked, "workflow.cancel", (workflow_id,), do)


async def retry_workflow(asked: Asked, *, workflow_id: str, node_ids: list[str] | None) -> WorkflowActionDone:
    async def do() -> WorkflowActionDone:
        broker = asked.dashboard.acting_broker
        moved = _workflow_value(asked, await control.retry_workflow(broker, workflow_id, node_ids))
        _refuse_unless(moved, "NOTHING_TO_RETRY", "the workflow, or one of these nodes, cannot be retried")
        return await _workflow_done(asked, workflow_id, "retry")

    return await perform(asked, "workflow.retry", (workflow_id,), do, node_ids=node_ids)


async def sweep(
    asked: Asked, *, sweep_threshold_seconds: float | None, recovery_delay_seconds: float | None, dry_run: bool
) -> SweepStaleWorkersResult:
    options = SweepStaleWorkersOptions.model_validate(
        {"sweep_threshold": sweep_threshold_seconds, "recovery_delay": recovery_delay_seconds, "dry_run": dry_run}
    )

    async def do() -> SweepStaleWorkersResult:
        swept = await WorkerUtils(asked.dashboard.acting_broker).sweep_stale_workers(options)
        if isinstance(swept, Ok):
            return swept.value
        message = asked.dashboard.database.redact(swept.error.message)
        raise not_done(swept.error.code, message, retryable=swept.error.retryable)

    def number(swept: SweepStaleWorkersResult) -> dict[str, int]:
        return {"recovered": swept.recovered_count}

    if dry_run:
        return await do()
    return await perform(asked, "worker.sweep", (), do, ids_of=lambda swept: swept.worker_ids, details_of=number)


async def drain_worker(asked: Asked, *, worker_id: str) -> WorkerDraining:
    async def do() -> WorkerDraining:
        drained = await monitoring.drain_worker(asked.dashboard.acting_broker, worker_id)
        if isinstance(drained, Ok):
            return drained.value
        error = drained.error
        if error.code is WorkerActionErrorCode.WORKER_NOT_FOUND:
            raise Refusal(404, error.code.value, error.message)
        raise Refusal(503, error.code.value, error.message, {"Retry-After": "2"} if error.retryable else None)

    return await perform(asked, "worker.drain", (worker_id,), do)


def _task_value(result: Ok[T] | Any) -> T:
    if isinstance(result, Ok):
        value: T = result.value
        return value
    error: monitoring.TaskActionError = result.error
    if error.code is TaskActionErrorCode.TASK_NOT_FOUND:
        raise Refusal(404, error.code.value, error.message)
    if error.code is TaskActionErrorCode.DB_OPERATION_FAILED:
        raise Refusal(503, error.code.value, error.message, {"Retry-After": "2"} if error.retryable else None)
    raise Refusal(409, error.code.value, error.message)


def _workflow_value(asked: Asked, result: HandleResult[T]) -> T:
    if isinstance(result, Ok):
        return result.value
    error = result.error
    if error.code is HandleErrorCode.WORKFLOW_NOT_FOUND:
        raise Refusal(404, error.code.value, error.message)
    message = asked.dashboard.database.redact(error.message)
    raise Refusal(503, error.code.value, message, {"Retry-After": "2"} if error.retryable else None)


async def _workflow_done(
    asked: Asked, workflow_id: str, action: Literal["pause", "resume", "cancel", "retry"]
) -> WorkflowActionDone:
    """What was done, and how the workflow stands now. It is done, whether or not that can be read."""
    stands = await read.run_async(asked.dashboard.acting_broker, workflow_id, read.ask_status)
    return WorkflowActionDone(workflow_id, action, stands.value if isinstance(stands, Ok) else None)


def _refuse_unless(moved: bool, code: str, message: str) -> None:
    if not moved:
        raise Refusal(409, code, message)


def _post(path: str, action: str, doc: str, answer: Any, ask: Any, *params: Param) -> Endpoint:
    return Endpoint("POST", path, doc, answer, ask, params, action=action)


_LONGEST_S = LONGEST.total_seconds()
ACTIONS: tuple[Endpoint, ...] = (
    _post(
        "tasks/{task_id}/cancel",
        "task.cancel",
        "Cancel a task that has not ended.",
        TaskCancelled,
        cancel_task,
        TASK_ID,
        Param("include_running", bool, "also if it is running; its code is then stopped", False),
    ),
    _post(
        "tasks/{task_id}/rerun",
        "task.rerun",
        "Send a task that ended without success again, as a new task.",
        TaskRerun,
        rerun_task,
        TASK_ID,
    ),
    _post(
        "tasks/{task_id}/run-now",
        "task.run_now",
        "Make a waiting task that is due later, or is to be tried again later, due at once.",
        TaskDue,
        run_task_now,
        TASK_ID,
    ),
    _post(
        "workflows/{workflow_id}/pause",
        "workflow.pause",
        "Start no more nodes until it is resumed.",
        WorkflowActionDone,
        pause_workflow,
        WORKFLOW_ID,
    ),
    _post(
        "workflows/{workflow_id}/resume",
        "workflow.resume",
        "Let a paused workflow continue.",
        WorkflowActionDone,
        resume_workflow,
        WORKFLOW_ID,
    ),
    _post(
        "workflows/{workflow_id}/cancel",
        "workflow.cancel",
        "Cancel a workflow and its child workflows.",
        WorkflowActionDone,
        cancel_workflow,
        WORKFLOW_ID,
    ),
    _post(
        "workflows/{workflow_id}/retry",
        "workflow.retry",
        "Run the failed nodes again, and then those that were skipped because of them.",
        WorkflowActionDone,
        retry_workflow,
        WORKFLOW_ID,
        Param("node_ids", Annotated[Texts, Field(min_length=1)] | None, "only these nodes", None),
    ),
    _post(
        "workers/{worker_id}/drain",
        "worker.drain",
        "Ask a worker to claim nothing more, finish its tasks, and leave.",
        WorkerDraining,
        drain_worker,
        Param("worker_id", Text, "the id of the worker"),
    ),
    _post(
        "recovery/sweep",
        "worker.sweep",
        "Return the tasks of dead workers to the queue.",
        SweepStaleWorkersResult,
        sweep,
        Param(
            "sweep_threshold_seconds",
            Annotated[float, Field(gt=0, le=_LONGEST_S, allow_inf_nan=False)] | None,
            "the silence after which a worker counts as dead; otherwise as configured",
            None,
        ),
        Param(
            "recovery_delay_seconds",
            Annotated[float, Field(ge=0, le=_LONGEST_S, allow_inf_nan=False)] | None,
            "the delay before a recovered task may run again; otherwise as configured",
            None,
        ),
        Param("dry_run", bool, "only say which workers count as dead", False),
    ),
)
