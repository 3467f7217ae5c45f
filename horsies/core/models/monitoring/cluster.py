"""What monitoring says about the whole: workers and which of them answer, schedules, queues, the server, and all of
these at one moment (`Snapshot`); and why a task is not running (`Explanation`).

These are plain values. `core/monitoring` makes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from horsies.core.models.recovery import ActiveWorker
from horsies.core.types import TaskStatus


@dataclass(frozen=True, slots=True)
class WorkerStateInfo:
    """A worker according to the registry and its newest snapshot.

    `is_live`: its last heartbeat is younger than three of its own intervals. Values from a snapshot are None or empty
    until there is one; `task_names` and `concurrency` (async tasks per process) are None if the worker did not publish
    them. `is_draining`: somebody has asked it to end when its tasks have ended.
    """

    worker_id: str
    is_live: bool
    hostname: str | None
    pid: int | None
    started_at: datetime
    last_heartbeat_at: datetime
    silence_seconds: float
    queues: tuple[str, ...]
    task_names: tuple[str, ...] | None
    processes: int | None
    tasks_running: int | None
    tasks_claimed: int | None
    cpu_percent: float | None
    memory_usage_mb: float | None
    memory_percent: float | None
    children_memory_mb: float | None
    max_claim_per_worker: int | None
    cluster_wide_cap: int | None
    queue_priorities: Mapping[str, int]
    queue_max_concurrency: Mapping[str, int | None]
    prefetch_buffer: int | None
    snapshot_at: datetime | None
    concurrency: int | None = None
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class WorkerHistoryPoint:
    """One snapshot of a worker, as a point of a chart."""

    snapshot_at: datetime
    tasks_running: int | None
    tasks_claimed: int | None
    cpu_percent: float | None
    memory_usage_mb: float | None
    memory_percent: float | None
    children_memory_mb: float | None


@dataclass(frozen=True, slots=True)
class WorkerPingInfo:
    """A worker that answered."""

    worker_id: str
    hostname: str
    pid: int
    latency_ms: float


@dataclass(frozen=True, slots=True)
class LivenessReport:
    """Which workers answer right now, and which registered workers did not."""

    database_latency_ms: float
    workers: tuple[WorkerPingInfo, ...]
    silent: tuple[str, ...]


ActiveWorkerInfo: TypeAlias = ActiveWorker


@dataclass(frozen=True, slots=True)
class ScheduleStateInfo:
    """A schedule as the scheduler stores it (D-35, D-36).

    `source` is `database` for a schedule that was added at run time, and `code` for the others. `is_active`: the
    schedule runs, as far as is known here; without an application it is unknown whether it is still in the code.
    `lag_seconds`: how long the next run of an active schedule has been overdue, otherwise 0. `definition` is also None
    if it cannot be read. A `next_run_at` in December 9999 means that it does not run until that is changed.
    """

    name: str
    source: Literal["code", "database"]
    paused: bool
    last_run_at: datetime | None
    next_run_at: datetime | None
    last_task_id: str | None
    run_count: int
    lag_seconds: float
    config_hash: str | None
    updated_at: datetime
    definition: Mapping[str, Any] | None
    is_active: bool = True


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue right now. `waiting` = `due` + `scheduled`. If more tasks wait than are counted, their number is
    estimated from a sample of the table, and `is_exact` is false; the age of the oldest due task is exact nevertheless.
    `ended_last_minute` is exact unless more than `snapshot.MOST_ENDED` tasks ended in the last minute; in that case it
    is an estimate from the newest ones."""

    name: str
    waiting: int
    due: int
    scheduled: int
    claimed: int
    running: int
    oldest_due_seconds: float | None
    ended_last_minute: int
    max_concurrency: int | None = None
    priority: int | None = None
    live_workers: int = 0
    is_exact: bool = True
    oldest_due_task_id: str | None = None


@dataclass(frozen=True, slots=True)
class TaskCount:
    """How many tasks of a name and queue are in a state. Ended tasks are counted within
    `Snapshot.ended_window_seconds`."""

    status: TaskStatus
    queue: str
    task_name: str
    count: int
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """What is known about the server. `listeners` counts sessions of this database with the names of our listeners
    (None if the user may not see them); `notification_queue_usage` is the filled part of the server's queue, 0 to 1."""

    server_version: str
    schema_version: int | None
    notify: str | None
    notification_queue_usage: float
    sessions: int
    listeners: int | None
    oldest_transaction_seconds: float | None


# What a snapshot is read as. `queues` are the names of those in which tasks wait; `depths` and `sample` are for those
# in which many wait.
PARTS = (
    "workers",
    "queues",
    "oldest_due",
    "waiting",
    "depths",
    "sample",
    "in_flight",
    "ended",
    "schedules",
    "workflows",
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at one moment, by the clock of the database: the command line shows it, and metrics expose it.

    `missing` has those of the `PARTS` that could not be read, and why; their numbers are absent, not zero. Of the
    workflows, at most `snapshot.MOST_WORKFLOWS` in each state are counted.
    """

    taken_at: datetime
    queues: tuple[QueueInfo, ...]
    task_counts: tuple[TaskCount, ...]
    ended_window_seconds: float
    workers: tuple[WorkerStateInfo, ...]
    schedules: tuple[ScheduleStateInfo, ...]
    workflow_counts: Mapping[str, int]
    database: DatabaseFacts
    missing: Mapping[str, str] = field(default_factory=dict)


AlertLevel: TypeAlias = Literal["bad", "warn"]


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that is wrong: how bad it is, what kind of thing, about what, and a sentence. `bad` is what stands
    still or is lost, or soon will; `warn` is what has failed, was stopped by a person, or should be looked at.
    `task_id` and `workflow_id` name one that it is about."""

    level: AlertLevel
    kind: str
    subject: str
    message: str
    task_id: str | None = None
    workflow_id: str | None = None


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
    `explain.MOST_NAMED` of them), `nodes` are the nodes it waits for, as `name (index): STATUS`. `remedies` are
    sentences for people: what can be done.
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
    remedies: tuple[str, ...] = ()
