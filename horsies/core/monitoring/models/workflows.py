"""Workflows, their nodes and edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from horsies.core.monitoring.models.tasks import TaskDetail
from horsies.core.types.status import WorkflowStatus, WorkflowTaskStatus


@dataclass(frozen=True, slots=True)
class WorkflowRunSummary:
    """One line of a list of workflows."""

    workflow_id: str
    name: str
    definition_key: str
    status: WorkflowStatus
    open_nodes: int
    error_code: str | None
    parent_workflow_id: str | None
    root_workflow_id: str | None
    depth: int
    good_until: datetime | None
    sent_at: datetime
    started_at: datetime | None
    paused_at: datetime | None
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkflowNodeInfo:
    """A node as a line of its workflow; for an element, `map_index` is the index of its map."""

    task_index: int
    node_id: str
    node_type: str
    task_name: str
    queue_name: str | None
    status: WorkflowTaskStatus
    task_id: str | None
    sub_workflow_id: str | None
    map_index: int | None
    map_position: int | None
    join_type: str
    deps_total: int
    deps_completed: int
    deps_failed: int
    deps_skipped: int
    error_code: str | None
    ready_at: datetime | None
    enqueued_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkflowEdge:
    """`target` waits for `source`, both as indexes of nodes."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class WorkflowRunDetail:
    """A workflow with its nodes, its edges and the indexes of failed nodes. For a very wide workflow these are only the
    first nodes and edges: `total_nodes` and `total_edges` are the real numbers."""

    run: WorkflowRunSummary
    on_error: str
    output_index: int | None
    success_policy: Mapping[str, Any] | None
    result: str | None
    error: str | None
    nodes: tuple[WorkflowNodeInfo, ...]
    edges: tuple[WorkflowEdge, ...]
    failed_indexes: tuple[int, ...]
    total_nodes: int
    total_edges: int


@dataclass(frozen=True, slots=True)
class WorkflowTaskDetail:
    """One node in full, with its current task, if there is one."""

    workflow_id: str
    node: WorkflowNodeInfo
    priority: int | None
    task_kwargs: str | None
    task_options: str | None
    dependencies: tuple[int, ...]
    dependents: tuple[int, ...]
    args_from: Mapping[str, Any]
    workflow_ctx_from: tuple[int, ...] | None
    min_success: int | None
    allow_failed_deps: bool
    good_until: datetime | None
    sub_workflow_key: str | None
    sub_workflow_summary: str | None
    previous_task_ids: tuple[str, ...]
    result: str | None
    task: TaskDetail | None
