"""Why a task is not running."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from horsies.core.types.status import TaskStatus


class Why(StrEnum):
    """What a task, or a node of a workflow, waits for."""

    NOT_DUE = "NOT_DUE"
    RETRY_DUE = "RETRY_DUE"
    DEADLINE_PASSED = "DEADLINE_PASSED"
    NO_WORKER = "NO_WORKER"
    NO_WORKER_SERVES_QUEUE = "NO_WORKER_SERVES_QUEUE"
    NO_WORKER_KNOWS_TASK = "NO_WORKER_KNOWS_TASK"
    QUEUE_PAUSED = "QUEUE_PAUSED"
    QUEUE_AT_LIMIT = "QUEUE_AT_LIMIT"
    CLUSTER_AT_CAP = "CLUSTER_AT_CAP"
    WORKFLOW_PAUSED = "WORKFLOW_PAUSED"
    WORKFLOW_ENDED = "WORKFLOW_ENDED"
    WAITING_FOR_NODES = "WAITING_FOR_NODES"
    WAITING_FOR_SUBWORKFLOW = "WAITING_FOR_SUBWORKFLOW"
    BEING_ENQUEUED = "BEING_ENQUEUED"
    IN_LINE = "IN_LINE"
    CLAIMED = "CLAIMED"
    RUNNING = "RUNNING"
    BEING_FINALIZED = "BEING_FINALIZED"
    WORKER_SILENT = "WORKER_SILENT"
    ENDED = "ENDED"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a task is not running: the first reason, a sentence for people, and the facts behind it.

    `since` and `until` are set where they apply; `tasks` are the ids of the tasks that hold the places (the first
    `reasons.MOST_NAMED` of them), `nodes` are the nodes it waits for, as `name (index): STATUS`.
    """

    subject: str
    why: Why
    message: str
    task_id: str | None = None
    status: TaskStatus | None = None
    workflow_id: str | None = None
    node_index: int | None = None
    queue: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    worker_id: str | None = None
    tasks: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
