"""Queries about workflows and their nodes (M-45)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horsies.core.brokers.hub import can_exist
from horsies.core.monitoring.asking import ask
from horsies.core.monitoring.filters import DEFAULT_LIMIT, BadQuestion, checked_limit, checked_text, members
from horsies.core.monitoring.models.answers import MonitoringResult
from horsies.core.monitoring.models.workflows import WorkflowRunDetail, WorkflowRunSummary, WorkflowTaskDetail
from horsies.core.store import monitoring, monitoring_workflows
from horsies.core.store.tasks import Connection
from horsies.core.types.status import WorkflowStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

MOST_NAMES = 1_000
MOST_NODES = 10_000
MOST_EDGES = 50_000
LARGEST_INDEX = 2**31 - 1


async def list_workflow_names(broker: PostgresBroker) -> MonitoringResult[tuple[str, ...]]:
    """The names of all workflows, sorted."""

    async def look(conn: Connection) -> tuple[str, ...]:
        return await monitoring_workflows.workflow_names(conn, most=MOST_NAMES)

    return await ask(broker, look)


async def list_workflow_runs(
    broker: PostgresBroker,
    *,
    name: str | None = None,
    status: WorkflowStatus | str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> MonitoringResult[tuple[WorkflowRunSummary, ...]]:
    """Workflows: active ones first, newest first; then ended ones, last ended first."""

    async def look(conn: Connection) -> tuple[WorkflowRunSummary, ...]:
        [wanted] = members(WorkflowStatus, "status", [status]) or [None] if status is not None else [None]
        named = None if name is None else checked_text("name", name)
        return await monitoring_workflows.list_workflows(conn, name=named, status=wanted, limit=checked_limit(limit))

    return await ask(broker, look)


async def get_workflow_run(broker: PostgresBroker, workflow_id: str) -> MonitoringResult[WorkflowRunDetail | None]:
    """A workflow with its nodes, edges and failed indexes; `Ok(None)` if there is no such row."""

    async def look(conn: Connection) -> WorkflowRunDetail | None:
        found = await monitoring_workflows.workflow(conn, workflow_id) if can_exist(workflow_id) else None
        if found is None:
            return None
        run, rest = found
        return WorkflowRunDetail(
            run,
            **rest,
            nodes=await monitoring_workflows.nodes(conn, workflow_id, most=MOST_NODES),
            edges=await monitoring_workflows.edges(conn, workflow_id, most=MOST_EDGES),
            failed_indexes=await monitoring_workflows.failed_nodes(conn, workflow_id, most=MOST_NODES),
        )

    return await ask(broker, look)


async def get_workflow_node(
    broker: PostgresBroker, workflow_id: str, task_index: int
) -> MonitoringResult[WorkflowTaskDetail | None]:
    """A node in full and its current task; `Ok(None)` if there is no such node."""

    async def look(conn: Connection) -> WorkflowTaskDetail | None:
        if isinstance(task_index, bool) or not isinstance(task_index, int):
            raise BadQuestion(f"the index of a node must be a whole number, not {task_index!r}")
        if not can_exist(workflow_id) or not 0 <= task_index <= LARGEST_INDEX:
            return None
        found = await monitoring_workflows.node(conn, workflow_id, task_index)
        if found is None:
            return None
        node, rest = found
        for name in ("dependencies", "dependents", "workflow_ctx_from", "previous_task_ids"):
            rest[name] = None if rest[name] is None else tuple(rest[name])
        task = None if node.task_id is None else await monitoring.task_detail(conn, node.task_id)
        return WorkflowTaskDetail(workflow_id, node, **rest, task=task)

    return await ask(broker, look)
