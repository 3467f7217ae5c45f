"""Everything at one moment: queues, tasks, workers, schedules, the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from horsies.core.monitoring.models.workers import WorkerStateInfo
from horsies.core.types.status import TaskStatus


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
    """A queue right now. `waiting` = `due` + `scheduled`. `ended_last_minute` is exact unless more than
    `snapshot.MOST_ENDED` tasks ended in the last minute; in that case it is an estimate from the newest ones."""

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


@dataclass(frozen=True, slots=True)
class TaskCount:
    """How many tasks of a name and queue are in a state. Ended tasks are counted within
    `Snapshot.ended_window_seconds`."""

    status: TaskStatus
    queue: str
    task_name: str
    count: int


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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at one moment, by the clock of the database: the command line shows it, and metrics expose it."""

    taken_at: datetime
    queues: tuple[QueueInfo, ...]
    task_counts: tuple[TaskCount, ...]
    ended_window_seconds: float
    workers: tuple[WorkerStateInfo, ...]
    schedules: tuple[ScheduleStateInfo, ...]
    workflow_counts: Mapping[str, int]
    database: DatabaseFacts
