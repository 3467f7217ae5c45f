"""Single tasks, and counts of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from horsies.core.models.tasks import TaskAttemptInfo
from horsies.core.types.status import TaskStatus

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


@dataclass(frozen=True, slots=True)
class TaskListPage:
    """A page of a list of tasks; `total` is the exact number of tasks on all pages."""

    items: tuple[TaskSummary, ...]
    total: int
    offset: int
    limit: int


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
    attempts: tuple[TaskAttemptInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class StatusCount:
    """How many tasks are in a state."""

    status: TaskStatus
    count: int


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
    """The values that can be used in filters: the most frequent ones of each kind, at most `queries.MOST_FACETS`."""

    task_names: tuple[FacetValue, ...]
    queues: tuple[FacetValue, ...]
    workers: tuple[FacetValue, ...]
    error_codes: tuple[ErrorFacet, ...]


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group of a breakdown; `value` is None for tasks that were never claimed."""

    value: str | None
    total: int
    counts: tuple[StatusCount, ...]


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Tasks by worker, name or queue, the largest groups first; `groups` is how many there are in all."""

    group_by: GroupBy
    rows: tuple[GroupRow, ...]
    groups: int
    total: int
