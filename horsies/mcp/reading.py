"""The tools that read (X-41): lists, one task or workflow with everything, why something is not running. `tailing.py`
has those that continue where an earlier call ended. Each answers with what the query API returns (M-45).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from horsies import monitoring
from horsies.core.models.monitoring import cluster, tasks
from horsies.core.types import TASK_TERMINAL_STATES, TaskStatus, WorkflowStatus, WorkflowTaskStatus
from horsies.mcp import bounds
from horsies.mcp.tools import UPPER, Limit, McpTool, Moment, NoParameters, OfTask, OfWorkflow, Text, Texts, Workbench
from horsies.mcp.tools import value_of as value

DEFAULT_LISTED = 20
MOST_NODES = 100
STATES = ", ".join(status.value for status in TaskStatus)


class TasksWanted(NoParameters):
    """Which tasks: OR within a list, AND between lists."""

    statuses: list[Annotated[TaskStatus, UPPER]] = Field(default=[], description=f"only these states: {STATES}")
    task_names: Texts = Field(default=[], description="only tasks with one of these names")
    queues: Texts = Field(default=[], description="only tasks of these queues")
    workers: Texts = Field(default=[], description="only tasks of these workers, by id")
    error_codes: Texts = Field(default=[], description="only tasks with one of these error codes")
    error_categories: list[Annotated[tasks.ErrorCategory, UPPER]] = Field(
        default=[], description="only error codes of these families; DOMAIN is every code of the app's own"
    )
    retried_only: bool = Field(default=False, description="only tasks that were retried")


class TaskPageWanted(TasksWanted):
    """A page of tasks."""

    sent_after: Moment | None = Field(default=None, description="only tasks sent then or later: 2026-01-31T12:00:00Z")
    sent_before: Moment | None = Field(default=None, description="only tasks sent before")
    id_prefix: Text | None = Field(default=None, description="only tasks whose id begins like this")
    idempotency_key: Text | None = Field(default=None, description="only tasks with this idempotency key")
    sort_by: Literal["id", "sent_at", "claim_order", "started_at", "ended_at"] = Field(
        default="id",
        description="id is the order of sending; claim_order is for waiting tasks only, started_at for "
        "claimed and running ones, ended_at for ended ones: these states are implied unless statuses are given",
    )
    sort_dir: Literal["asc", "desc"] = Field(default="desc", description="desc: the newest first")
    limit: Limit = DEFAULT_LISTED
    after: Text | None = Field(default=None, description="the next_cursor of the page before, with the same filters")


class WorkflowsWanted(NoParameters):
    name: Text | None = Field(default=None, description="only workflows with this name")
    status: Annotated[WorkflowStatus | None, UPPER] = Field(default=None, description="only workflows in this state")
    limit: Limit = DEFAULT_LISTED


class FailuresWanted(NoParameters):
    since: Moment | None = Field(default=None, description="from then on, 2026-01-31T12:00:00Z; otherwise the last day")
    limit: Limit = DEFAULT_LISTED


MaxChars = Annotated[int, Field(ge=100, le=bounds.LONGEST_ASKED)]
_MORE = f"texts (arguments, results, errors) longer than this are cut; at most {bounds.LONGEST_ASKED:,}"


class TaskInFull(OfTask):
    max_chars: MaxChars = Field(default=bounds.LONGEST_TEXT, description=_MORE)


class WorkflowInFull(OfWorkflow):
    node_statuses: list[Annotated[WorkflowTaskStatus, UPPER]] = Field(
        default=[], description="only nodes in these states, for example FAILED"
    )
    first_node: int = Field(
        default=0, ge=0, description="only nodes from this index on; next_node of the answer before"
    )
    max_nodes: int = Field(default=50, ge=0, le=MOST_NODES, description="how many nodes at most")
    max_chars: MaxChars = Field(default=bounds.LONGEST_TEXT, description=_MORE)


class NodeInFull(OfWorkflow):
    index: int = Field(ge=0, description="the index of the node in its workflow (task_index)")
    max_chars: MaxChars = Field(default=bounds.LONGEST_TEXT, description=_MORE)


class Explained(NoParameters):
    id: Text = Field(description="the id of a task, or of a node as WORKFLOW_ID:INDEX")


@dataclass(frozen=True, slots=True)
class InspectedWorkflow:
    """A workflow with some of its nodes, and the edges between these; `next_node`, as first_node, continues."""

    workflow: tasks.WorkflowRunDetail
    next_node: int | None


@dataclass(frozen=True, slots=True)
class QueuesNow:
    """The queues at one moment; `missing` has the parts that could not be read, and why."""

    taken_at: datetime
    queues: tuple[cluster.QueueInfo, ...]
    missing: Mapping[str, str]


# The states that a sort order lists if none are named.
_STATES_OF: dict[str, tuple[TaskStatus, ...]] = {
    "claim_order": (TaskStatus.PENDING,),
    "started_at": (TaskStatus.CLAIMED, TaskStatus.RUNNING),
    "ended_at": tuple(sorted(TASK_TERMINAL_STATES)),
}


async def list_tasks(bench: Workbench, given: TaskPageWanted) -> tasks.TaskListPage:
    wanted = {name: getattr(given, name) for name in TaskPageWanted.model_fields}
    wanted["statuses"] = given.statuses or _STATES_OF.get(given.sort_by, ())
    page: tasks.TaskListPage = value(await monitoring.list_tasks(bench.broker, **wanted))
    return page


async def count_tasks(bench: Workbench, given: TasksWanted) -> Any:
    wanted = {name: getattr(given, name) for name in TasksWanted.model_fields}
    statuses = set(wanted.pop("statuses"))
    counts = value(await monitoring.task_stats(bench.broker, **wanted))
    return tuple(one for one in counts if not statuses or one.status in statuses)


async def list_queues(bench: Workbench, given: NoParameters) -> QueuesNow:
    found: cluster.Snapshot = value(await monitoring.take_snapshot(bench.broker))
    return QueuesNow(found.taken_at, found.queues, found.missing)


async def inspect_workflow(bench: Workbench, given: WorkflowInFull) -> InspectedWorkflow:
    found: tasks.WorkflowRunDetail = value(await monitoring.get_workflow_run(bench.broker, given.workflow_id))
    states = set(given.node_statuses)
    fitting = [
        node for node in found.nodes if node.task_index >= given.first_node and (not states or node.status in states)
    ]
    shown = tuple(fitting[: given.max_nodes])
    indexes = {node.task_index for node in shown}
    edges = tuple(edge for edge in found.edges if edge.source in indexes and edge.target in indexes)
    more = fitting[len(shown)].task_index if len(fitting) > len(shown) else None
    failed = found.failed_indexes[:MOST_NODES]
    return InspectedWorkflow(replace(found, nodes=shown, edges=edges, failed_indexes=failed), more)


async def inspect_task(bench: Workbench, given: TaskInFull) -> Any:
    return value(await monitoring.get_task_detail(bench.broker, given.task_id))


async def inspect_node(bench: Workbench, given: NodeInFull) -> Any:
    return value(await monitoring.get_workflow_node(bench.broker, given.workflow_id, given.index))


async def explain(bench: Workbench, given: Explained) -> Any:
    return value(await monitoring.explain_task(bench.broker, given.id))


async def list_workflows(bench: Workbench, given: WorkflowsWanted) -> Any:
    return value(await monitoring.list_workflow_runs(bench.broker, **dict(given)))


async def list_failures(bench: Workbench, given: FailuresWanted) -> Any:
    return value(await monitoring.list_failures(bench.broker, since=given.since, limit=given.limit))


def _all_of(query: Callable[..., Awaitable[Any]]) -> Callable[[Workbench, NoParameters], Awaitable[Any]]:
    async def ask(bench: Workbench, given: NoParameters) -> Any:
        return value(await query(bench.broker))

    return ask


READING: tuple[McpTool, ...] = (
    McpTool(
        "list_tasks",
        "List tasks",
        "A page of tasks, the last sent first, without arguments and results (inspect_task has these). Begin here to "
        "find failed, waiting or running tasks.",
        TaskPageWanted,
        list_tasks,
    ),
    McpTool("count_tasks", "Count tasks", "How many tasks are in each state.", TasksWanted, count_tasks),
    McpTool(
        "list_queues",
        "List queues",
        "Each queue right now: how many tasks wait, are due, run; the age of the oldest due task; limits and workers.",
        NoParameters,
        list_queues,
    ),
    McpTool(
        "list_workers",
        "List workers",
        "Every registered worker: whether it is live, its queues, the tasks that it knows, its load.",
        NoParameters,
        _all_of(monitoring.list_workers),
    ),
    McpTool(
        "list_schedules",
        "List schedules",
        "Each schedule that a scheduler has seen, with its last and next run.",
        NoParameters,
        _all_of(monitoring.list_schedules),
    ),
    McpTool(
        "list_workflows",
        "List workflows",
        "Workflows: active ones first, then the last ended.",
        WorkflowsWanted,
        list_workflows,
    ),
    McpTool(
        "list_failures",
        "Group failures",
        "Which tasks failed with which error codes, the most frequent first, each with an example for inspect_task.",
        FailuresWanted,
        list_failures,
    ),
    McpTool(
        "list_alerts",
        "List alerts",
        "What is wrong right now, the worst first. A good first question.",
        NoParameters,
        _all_of(monitoring.list_alerts),
    ),
    McpTool(
        "inspect_task",
        "Inspect a task",
        "One task with everything: arguments, result or error, options, attempts, progress. The payloads are JSON "
        "texts.",
        TaskInFull,
        inspect_task,
    ),
    McpTool(
        "inspect_workflow",
        "Inspect a workflow",
        "One workflow with its nodes and the edges between them, its result or error, and the indexes of failed nodes.",
        WorkflowInFull,
        inspect_workflow,
    ),
    McpTool(
        "inspect_node",
        "Inspect a node",
        "One node of a workflow with everything, and its current task.",
        NodeInFull,
        inspect_node,
    ),
    McpTool(
        "explain",
        "Explain why it is not running",
        "Why a task, or a node of a workflow, is not running, the facts behind that, and what can be done.",
        Explained,
        explain,
    ),
)
