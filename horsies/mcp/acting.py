"""The tools that change something (X-41). They exist only with `--enable-actions`. Each change is written down in the
audit before it is made, as those of the dashboard are (M-94): what cannot be written down is not done.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import Field

from horsies import monitoring
from horsies.core.models.workflow.results import HandleResult
from horsies.core.monitoring import audit
from horsies.core.text import visible
from horsies.core.types import Err, Ok, WorkflowStatus
from horsies.core.workflows import control, read
from horsies.mcp.tools import McpTool, OfTask, OfWorkflow, Texts, ToolRefusal, Workbench

log = logging.getLogger("horsies.mcp")
T = TypeVar("T")


class TaskToCancel(OfTask):
    include_running: bool = Field(default=False, description="also if it is running; its code is then stopped")


class WorkflowToRetry(OfWorkflow):
    node_ids: Annotated[Texts, Field(min_length=1)] | None = Field(
        default=None, description="only these failed nodes, by node_id; otherwise all"
    )


@dataclass(frozen=True, slots=True)
class WorkflowChanged:
    """What was done, and the state of the workflow after that, if it could be read."""

    workflow_id: str
    done: str
    status: WorkflowStatus | None


@dataclass(frozen=True, slots=True)
class NotDone:
    """An action that makes no sense in the state of things."""

    code: str
    message: str


async def rerun_task(bench: Workbench, given: OfTask) -> Any:
    def new_id(done: monitoring.TaskRerun) -> dict[str, str]:
        return {"new_task_id": done.task_id}

    def do() -> Awaitable[monitoring.TaskRerunResult]:
        return monitoring.rerun_task(bench.acting_broker, given.task_id)

    return await _perform(bench, "task.rerun", given.task_id, do, details_of=new_id)


async def cancel_task(bench: Workbench, given: TaskToCancel) -> Any:
    def do() -> Awaitable[monitoring.TaskActionResult]:
        return monitoring.cancel_task(bench.acting_broker, given.task_id, include_running=given.include_running)

    return await _perform(bench, "task.cancel", given.task_id, do, include_running=given.include_running)


async def run_task_now(bench: Workbench, given: OfTask) -> Any:
    def do() -> Awaitable[monitoring.TaskDueResult]:
        return monitoring.run_task_now(bench.acting_broker, given.task_id)

    return await _perform(bench, "task.run_now", given.task_id, do)


async def retry_workflow(bench: Workbench, given: WorkflowToRetry) -> Any:
    async def do() -> Any:
        moved = await control.retry_workflow(bench.acting_broker, given.workflow_id, given.node_ids)
        why = NotDone("NOTHING_TO_RETRY", "the workflow, or one of these nodes, cannot be retried")
        return await _changed(bench, given.workflow_id, "retry", moved, why)

    return await _perform(bench, "workflow.retry", given.workflow_id, do, node_ids=given.node_ids)


async def cancel_workflow(bench: Workbench, given: OfWorkflow) -> Any:
    async def do() -> Any:
        moved = await control.cancel_workflow(bench.acting_broker, given.workflow_id)
        why = NotDone("WORKFLOW_HAS_ENDED", "the workflow has ended already")
        return await _changed(bench, given.workflow_id, "cancel", moved, why)

    return await _perform(bench, "workflow.cancel", given.workflow_id, do)


async def _changed(
    bench: Workbench, workflow_id: str, done: str, moved: HandleResult[bool], why_not: NotDone
) -> Ok[WorkflowChanged] | Err[Any]:
    if not isinstance(moved, Ok):
        return moved
    if not moved.value:
        return Err(why_not)
    stands = await read.run_async(bench.acting_broker, workflow_id, read.ask_status)
    return Ok(WorkflowChanged(workflow_id, done, stands.value if isinstance(stands, Ok) else None))


async def _perform(
    bench: Workbench,
    action: str,
    target: str,
    do: Callable[[], Awaitable[Ok[T] | Err[Any]]],
    *,
    details_of: Callable[[T], Mapping[str, Any]] | None = None,
    **details: Any,
) -> T:
    """Every change. A refusal is written down too."""
    deed = audit.Deed(bench.actor, action, action.partition(".")[0], (target,), details)
    result = await audit.audited(bench.acting_broker, deed, do, details_of=details_of)
    outcome = "done" if isinstance(result, Ok) else "not done"
    log.info("%s: %s: %s", visible(bench.actor), action, outcome)
    if isinstance(result, Ok):
        return result.value
    error = result.error
    raise ToolRefusal(str(getattr(error.code, "value", error.code)), bench.redact(error.message))


ACTING: tuple[McpTool, ...] = (
    McpTool(
        "rerun_task",
        "Send a task again",
        "Send a task that FAILED, was CANCELLED or EXPIRED again, as a new task with the same arguments. Every call "
        "sends one more.",
        OfTask,
        rerun_task,
        action="task.rerun",
    ),
    McpTool(
        "cancel_task",
        "Cancel a task",
        "Cancel a task that has not ended. A task of a workflow is cancelled with its workflow only.",
        TaskToCancel,
        cancel_task,
        action="task.cancel",
        destroys=True,
    ),
    McpTool(
        "run_task_now",
        "Run a task now",
        "Make a waiting task that is due later, or is to be tried again later, due at once.",
        OfTask,
        run_task_now,
        action="task.run_now",
    ),
    McpTool(
        "retry_workflow",
        "Retry the failed nodes of a workflow",
        "Run the failed nodes of a workflow again, and then those that were skipped because of them.",
        WorkflowToRetry,
        retry_workflow,
        action="workflow.retry",
    ),
    McpTool(
        "cancel_workflow",
        "Cancel a workflow",
        "Cancel a workflow and its child workflows.",
        OfWorkflow,
        cancel_workflow,
        action="workflow.cancel",
        destroys=True,
    ),
)
