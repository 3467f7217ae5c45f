"""What monitoring says about tasks and workflows: single ones, lists and counts; how a query ends (an answer, or the
reason why there is none), and how answers become JSON.

These are plain values. `core/monitoring` makes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic_core import to_jsonable_python

from horsies.core.models import codes, tasks
from horsies.core.models.failures import OperationFailed
from horsies.core.models.notes import TaskProgress
from horsies.core.types import Err, Ok, TaskStatus, WorkflowStatus, WorkflowTaskStatus

T = TypeVar("T")


def to_jsonable(value: Any) -> Any:
    """The value as dicts, lists, texts and numbers, ready for `json.dumps`."""
    return to_jsonable_python(value)


class MonitoringErrorCode(StrEnum):
    """Why there is no answer."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    QUERY_TIMEOUT = "QUERY_TIMEOUT"
    DB_OPERATION_FAILED = "DB_OPERATION_FAILED"


@dataclass(frozen=True, slots=True)
class MonitoringQueryError(OperationFailed):
    """A query without an answer; `retryable` if the same query may succeed a moment later."""

    code: MonitoringErrorCode


MonitoringResult: TypeAlias = Ok[T] | Err[MonitoringQueryError]
GroupBy: TypeAlias = Literal["worker", "task_name", "queue"]
SortBy: TypeAlias = Literal["id", "claim_order", "started_at", "ended_at", "sent_at"]
SortDir: TypeAlias = Literal["asc", "desc"]


class ErrorCategory(StrEnum):
    """The family of an error code (M-46); DOMAIN is every code that is not built in."""

    OPERATIONAL = "OPERATIONAL"
    CONTRACT = "CONTRACT"
    RETRIEVAL = "RETRIEVAL"
    OUTCOME = "OUTCOME"
    DOMAIN = "DOMAIN"


@dataclass(frozen=True, slots=True)
class TaskArguments:
    """The arguments of a task for a line of a list: JSON texts, or the beginning of a long one, which is no JSON."""

    task_id: str
    task_name: str
    args: str | None
    kwargs: str | None


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """One line of a list of tasks, without columns that may be large."""

    task_id: str
    task_name: str
    queue_name: str
    priority: int
    status: TaskStatus
    sent_at: datetime
    enqueued_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    next_retry_at: datetime | None
    good_until: datetime | None
    retry_count: int
    max_retries: int
    error_code: str | None
    error_category: ErrorCategory | None
    worker_id: str | None
    worker_hostname: str | None
    worker_pid: int | None
    workflow_id: str | None
    progress: TaskProgress | None = None


@dataclass(frozen=True, slots=True)
class TaskListPage:
    """A page of a list of tasks. `total` is the number of tasks on all pages, or at least so many if it is not exact.

    `next_cursor`, as `after`, continues the list; it is None at the end. `is_partial`: the search stopped after
    `windows.LOOK` tasks, before it had found a full page or the end.
    """

    items: tuple[TaskSummary, ...]
    total: int
    offset: int
    limit: int
    total_is_exact: bool = True
    next_cursor: str | None = None
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class TaskDetail:
    """A task with all its columns, payloads as JSON texts, and its attempts, newest first."""

    task_id: str
    task_name: str
    queue_name: str
    priority: int
    args: str | None
    kwargs: str | None
    status: TaskStatus
    sent_at: datetime
    enqueued_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    failed_at: datetime | None
    ended_at: datetime | None
    result: str | None
    failed_reason: str | None
    error_code: str | None
    error_category: ErrorCategory | None
    claimed: bool
    claimed_by_worker_id: str | None
    good_until: datetime | None
    retry_count: int
    max_retries: int
    next_retry_at: datetime | None
    task_options: str | None
    worker_pid: int | None
    worker_hostname: str | None
    worker_process_name: str | None
    claim_expires_at: datetime | None
    enqueue_sha: str | None
    created_at: datetime
    updated_at: datetime
    finalizing_at: datetime | None
    claim_seq: int
    flags: Mapping[str, Any]
    recovery_enrolled: bool
    start_failures: int
    workflow_id: str | None
    idempotency_key: str | None
    sent_by: str | None  # the role that has called horsies_send; None for sends of Python
    attempts: tuple[tasks.TaskAttemptInfo, ...] = ()
    progress: TaskProgress | None = None


@dataclass(frozen=True, slots=True)
class StatusCount:
    """How many tasks are in a state; at least so many if it is not exact."""

    status: TaskStatus
    count: int
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value that occurs, and how often."""

    value: str
    count: int


@dataclass(frozen=True, slots=True)
class ErrorFacet:
    """An error code that occurs, its family, and how often."""

    code: str
    category: ErrorCategory
    count: int


@dataclass(frozen=True, slots=True)
class Facets:
    """The values that can be used in filters: the most frequent ones of each kind, at most `MOST_FACETS`. If it is not
    exact, only a part of the tasks was looked at: counts are at least these, and rare values may be missing."""

    task_names: tuple[FacetValue, ...]
    queues: tuple[FacetValue, ...]
    workers: tuple[FacetValue, ...]
    error_codes: tuple[ErrorFacet, ...]
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group of a breakdown; `value` is None for tasks that were never claimed."""

    value: str | None
    total: int
    counts: tuple[StatusCount, ...]


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Tasks by worker, name or queue, the largest groups first; `groups` is how many there are in all. If it is not
    exact, only a part of the tasks was looked at, and all numbers are at least these."""

    group_by: GroupBy
    rows: tuple[GroupRow, ...]
    groups: int
    total: int
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class WorkflowRunSummary:
    """One line of a list of workflows. `open_nodes` are those of its definition that have not ended. `nodes` counts
    also the elements of maps that have begun; `nodes_ended` of them have ended (None: very many have not)."""

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
    nodes: int | None = None
    nodes_ended: int | None = None


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
    min_success: int | None = None
    allow_failed_deps: bool = False


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


_FAMILIES: dict[ErrorCategory, type[StrEnum]] = {
    ErrorCategory.OPERATIONAL: codes.OperationalErrorCode,
    ErrorCategory.CONTRACT: codes.ContractCode,
    ErrorCategory.RETRIEVAL: codes.RetrievalCode,
    ErrorCategory.OUTCOME: codes.OutcomeCode,
}

_CATEGORY_OF: dict[str, ErrorCategory] = {
    member.value: category for category, family in _FAMILIES.items() for member in family
}


def category_of(code: str | None) -> ErrorCategory | None:
    """The family of a stored error code."""
    return None if code is None else _CATEGORY_OF.get(code, ErrorCategory.DOMAIN)
