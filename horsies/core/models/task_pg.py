"""The tables of tasks, workers and schedules, as SQLAlchemy describes them; those by which workers act together are in
``fleet_pg``, and those of dashboards in ``dashboard_pg``.

These models are the one description of the tables: columns, constraints, indexes and storage settings. The statements
that run later are ``.sql`` files; the functions and triggers are in ``core/sql/schema``. Every default is a server
default, so that a row inserted with plain SQL looks like any other. After a release, a change here needs a numbered
migration (see ``core/schema/install.py``).
"""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum as PyEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from horsies.core.types import TaskAttemptOutcome, TaskStatus

TIMESTAMP = sa.DateTime(timezone=True)
NOW = sa.text("now()")
FALSE = sa.text("false")
ZERO = sa.text("0")
EMPTY_OBJECT = sa.text("'{}'::jsonb")
EMPTY_ARRAY = sa.text("'{}'")
IS_WAITING = "status = 'PENDING'"
ENDED_AT = (
    "CASE WHEN status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED')"
    " THEN COALESCE(completed_at, failed_at, updated_at) END"
)
# What Python can read, and far enough from the end of the type that arithmetic does not overflow (D-14).
EARLIEST, END_OF_TIME = "0001-01-01Z", "10000-01-01Z"
MOST = 1_000_000_000


class Base(DeclarativeBase):
    """Holds the metadata of every horsies table; none names a schema, so the search path decides."""


def names_of(members: type[PyEnum], length: int) -> sa.Enum:
    """A plain VARCHAR that loads as the member; a CHECK constraint of the table guards the names, not a native enum."""
    return sa.Enum(members, native_enum=False, create_constraint=False, length=length)


def one_of(column: str, names: tuple[str, ...]) -> str:
    """The text of a CHECK constraint: the column holds one of the names."""
    return f"{column} IN ({', '.join(repr(name) for name in names)})"


def within_limits(
    table: str, dates: Sequence[str], counters: Sequence[str] = (), most: int = MOST
) -> sa.CheckConstraint:
    """One constraint for all dates and counters of a table, because it is evaluated with every move (D-14). NULLs do
    not count in LEAST and GREATEST."""
    parts = [f"{_of('LEAST', dates)} >= '{EARLIEST}'", f"{_of('GREATEST', dates)} < '{END_OF_TIME}'"]
    if counters:
        parts += [f"{_of('LEAST', counters)} >= 0", f"{_of('GREATEST', counters)} <= {most}"]
    return sa.CheckConstraint(" AND ".join(parts), name=f"{table}_limits_check")


def _of(extreme: str, columns: Sequence[str]) -> str:
    return columns[0] if len(columns) == 1 else f"{extreme}({', '.join(columns)})"


def stored_with(table: Any, **settings: float) -> None:
    """Give a table storage parameters when it is created (SQLAlchemy has no table option for them)."""
    assert isinstance(table, sa.Table)
    listed = ", ".join(f"{name} = {value}" for name, value in settings.items())
    command = sa.DDL(f"ALTER TABLE {table.name} SET ({listed})")  # type: ignore[no-untyped-call]
    sa.event.listen(table, "after_create", command)


# fmt: off
TASK_DATES = (
    "sent_at", "enqueued_at", "claimed_at", "started_at", "completed_at", "failed_at", "good_until", "next_retry_at",
    "claim_expires_at", "created_at", "updated_at", "finalizing_at",
)
TASK_COUNTERS = ("retry_count", "max_retries", "claim_seq", "start_failures")
# fmt: on


class TaskModel(Base):
    """One row per task sent."""

    __tablename__ = "horsies_tasks"

    id: Mapped[str] = mapped_column(sa.String(36), primary_key=True)
    task_name: Mapped[str] = mapped_column(sa.String(255))
    queue_name: Mapped[str] = mapped_column(sa.String(100), server_default="default")
    priority: Mapped[int] = mapped_column(sa.Integer, server_default=sa.text("100"))
    args: Mapped[str | None] = mapped_column(sa.Text)
    kwargs: Mapped[str | None] = mapped_column(sa.Text)
    status: Mapped[TaskStatus] = mapped_column(names_of(TaskStatus, 20), server_default="PENDING")
    sent_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    enqueued_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    claimed_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    started_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    completed_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    failed_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    result: Mapped[str | None] = mapped_column(sa.Text)
    failed_reason: Mapped[str | None] = mapped_column(sa.Text)
    error_code: Mapped[str | None] = mapped_column(sa.Text)
    claimed: Mapped[bool] = mapped_column(sa.Boolean, server_default=FALSE)
    claimed_by_worker_id: Mapped[str | None] = mapped_column(sa.String(255))
    good_until: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    retry_count: Mapped[int] = mapped_column(sa.Integer, server_default=ZERO)
    max_retries: Mapped[int] = mapped_column(sa.Integer, server_default=ZERO)
    next_retry_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    task_options: Mapped[str | None] = mapped_column(sa.Text)
    worker_pid: Mapped[int | None] = mapped_column(sa.Integer)
    worker_hostname: Mapped[str | None] = mapped_column(sa.String(255))
    worker_process_name: Mapped[str | None] = mapped_column(sa.String(255))
    claim_expires_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    enqueue_sha: Mapped[str | None] = mapped_column(sa.String(64))
    created_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    finalizing_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    claim_seq: Mapped[int] = mapped_column(sa.Integer, server_default=ZERO)
    flags: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=EMPTY_OBJECT)
    recovery_enrolled: Mapped[bool] = mapped_column(sa.Boolean, server_default=FALSE)
    start_failures: Mapped[int] = mapped_column(sa.Integer, server_default=ZERO)
    workflow_id: Mapped[str | None] = mapped_column(sa.String(36))
    idempotency_key: Mapped[str | None] = mapped_column(sa.String(255))
    # Indexes use these columns instead of `status` and `updated_at`, because they rarely change. An update that changes
    # no indexed column is heap-only; CLAIMED → RUNNING and lease renewals are such updates.
    is_waiting: Mapped[bool] = mapped_column(sa.Boolean, sa.Computed(IS_WAITING, persisted=True))
    ended_at: Mapped[datetime | None] = mapped_column(TIMESTAMP, sa.Computed(ENDED_AT, persisted=True))
    is_held: Mapped[bool] = mapped_column(sa.Boolean, server_default=FALSE)  # its workflow is paused (F-50)
    sent_by: Mapped[str | None] = mapped_column(sa.String(63))  # the role that called horsies_send

    # There are few indexes, and they are partial: a transition rewrites every index that holds the row.
    __table_args__ = (
        sa.CheckConstraint("priority BETWEEN 1 AND 100", name="horsies_tasks_priority_check"),
        sa.CheckConstraint("retry_count >= 0", name="horsies_tasks_retry_count_check"),
        sa.CheckConstraint("max_retries >= 0", name="horsies_tasks_max_retries_check"),
        sa.CheckConstraint(one_of("status", tuple(TaskStatus.__members__)), name="horsies_tasks_status_check"),
        within_limits("horsies_tasks", TASK_DATES, TASK_COUNTERS),
        sa.Index(
            "horsies_tasks_pending_idx",
            "queue_name",
            "priority",
            "is_held",
            "enqueued_at",
            "id",
            postgresql_where=sa.text("is_waiting"),
        ),
        sa.Index("horsies_tasks_held_idx", "workflow_id", "id", postgresql_where=sa.text("is_held AND is_waiting")),
        sa.Index("horsies_tasks_owner_idx", "claimed_by_worker_id", postgresql_where=sa.text("claimed")),
        sa.Index(
            "horsies_tasks_deadline_idx",
            "good_until",
            postgresql_where=sa.text("is_waiting AND good_until IS NOT NULL"),
        ),
        sa.Index(
            "horsies_tasks_retry_idx",
            "next_retry_at",
            postgresql_where=sa.text("is_waiting AND next_retry_at IS NOT NULL"),
        ),
        sa.Index("horsies_tasks_error_code_idx", "error_code", postgresql_where=sa.text("error_code IS NOT NULL")),
        sa.Index("horsies_tasks_terminal_age_idx", "ended_at", postgresql_where=sa.text("ended_at IS NOT NULL")),
        sa.Index(
            "horsies_tasks_idempotency_idx",
            "task_name",
            "idempotency_key",
            unique=True,
            postgresql_where=sa.text("idempotency_key IS NOT NULL"),
        ),
    )


class TaskAttemptModel(Base):
    """One row per run of user code that came to an end; never updated."""

    __tablename__ = "horsies_task_attempts"

    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    task_id: Mapped[str] = mapped_column(sa.String(36), sa.ForeignKey("horsies_tasks.id", ondelete="CASCADE"))
    attempt: Mapped[int] = mapped_column(sa.Integer)
    outcome: Mapped[TaskAttemptOutcome] = mapped_column(names_of(TaskAttemptOutcome, 32))
    will_retry: Mapped[bool] = mapped_column(sa.Boolean)
    started_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    finished_at: Mapped[datetime] = mapped_column(TIMESTAMP)
    error_code: Mapped[str | None] = mapped_column(sa.Text)
    error_message: Mapped[str | None] = mapped_column(sa.Text)
    failed_reason: Mapped[str | None] = mapped_column(sa.Text)
    worker_id: Mapped[str | None] = mapped_column(sa.String(255))
    worker_hostname: Mapped[str | None] = mapped_column(sa.String(255))
    worker_process_name: Mapped[str | None] = mapped_column(sa.String(255))
    worker_pid: Mapped[int | None] = mapped_column(sa.Integer)
    created_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)

    __table_args__ = (
        sa.UniqueConstraint("task_id", "attempt", name="horsies_task_attempts_task_id_attempt_key"),
        sa.CheckConstraint(
            one_of("outcome", tuple(TaskAttemptOutcome.__members__)), name="horsies_task_attempts_outcome_check"
        ),
        within_limits("horsies_task_attempts", ("started_at", "finished_at", "created_at"), ("attempt",), 2 * MOST),
        sa.Index(
            "horsies_task_attempts_error_code_idx", "error_code", postgresql_where=sa.text("error_code IS NOT NULL")
        ),
        sa.Index("horsies_task_attempts_finished_at_idx", sa.text("finished_at DESC")),
    )


class TaskProgressModel(Base):
    """The newest progress of a task (D-22). Written asynchronously: a server crash may lose the last second of it."""

    __tablename__ = "horsies_task_progress"

    task_id: Mapped[str] = mapped_column(sa.String(36), primary_key=True)
    claim_seq: Mapped[int] = mapped_column(sa.Integer)
    attempt: Mapped[int] = mapped_column(sa.Integer)
    done: Mapped[float] = mapped_column(sa.Double)
    total: Mapped[float | None] = mapped_column(sa.Double)
    message: Mapped[str | None] = mapped_column(sa.Text)
    first_done: Mapped[float] = mapped_column(sa.Double)  # the first of this claim, for the rate
    first_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)

    __table_args__ = (
        within_limits("horsies_task_progress", ("first_at", "updated_at"), ("claim_seq", "attempt"), 2 * MOST),
    )


class TaskLogModel(Base):
    """What a task has logged, some lines in each row, numbered within the claim (D-23)."""

    __tablename__ = "horsies_task_logs"

    task_id: Mapped[str] = mapped_column(sa.String(36), primary_key=True)
    claim_seq: Mapped[int] = mapped_column(sa.Integer, primary_key=True, autoincrement=False)
    first_line: Mapped[int] = mapped_column(sa.Integer, primary_key=True, autoincrement=False)
    last_line: Mapped[int] = mapped_column(sa.Integer)
    attempt: Mapped[int] = mapped_column(sa.Integer)
    lines: Mapped[str] = mapped_column(sa.Text)
    written_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)

    __table_args__ = (
        within_limits(
            "horsies_task_logs", ("written_at",), ("claim_seq", "attempt", "first_line", "last_line"), 2 * MOST
        ),
        sa.Index("horsies_task_logs_written_at_idx", "written_at"),
    )


class TaskHeartbeatModel(Base):
    """Heartbeats of claimed and running tasks; deleted by age, so ids may be reused."""

    __tablename__ = "horsies_heartbeats"

    id: Mapped[int] = mapped_column(sa.Integer, sa.Identity(cycle=True), primary_key=True)
    task_id: Mapped[str] = mapped_column(sa.String(36))
    sender_id: Mapped[str] = mapped_column(sa.String(255))
    role: Mapped[str] = mapped_column(sa.String(20))
    sent_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    hostname: Mapped[str | None] = mapped_column(sa.String(255))
    pid: Mapped[int | None] = mapped_column(sa.Integer)

    __table_args__ = (
        sa.CheckConstraint(one_of("role", ("claimer", "runner")), name="horsies_heartbeats_role_check"),
        within_limits("horsies_heartbeats", ("sent_at",)),
        sa.Index("horsies_heartbeats_task_idx", "task_id", "role", sa.text("sent_at DESC")),
        sa.Index("horsies_heartbeats_sent_at_idx", "sent_at"),
    )


class WorkerStateModel(Base):
    """Snapshots of a worker, appended while it runs."""

    __tablename__ = "horsies_worker_states"

    id: Mapped[int] = mapped_column(sa.Integer, sa.Identity(cycle=True), primary_key=True)
    worker_id: Mapped[str] = mapped_column(sa.String(255))
    snapshot_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    hostname: Mapped[str | None] = mapped_column(sa.String(255))
    pid: Mapped[int | None] = mapped_column(sa.Integer)
    processes: Mapped[int | None] = mapped_column(sa.Integer)
    queues: Mapped[list[str] | None] = mapped_column(ARRAY(sa.String))
    tasks_running: Mapped[int | None] = mapped_column(sa.Integer)
    tasks_claimed: Mapped[int | None] = mapped_column(sa.Integer)
    memory_usage_mb: Mapped[float | None] = mapped_column(sa.Double)
    cpu_percent: Mapped[float | None] = mapped_column(sa.Double)
    memory_percent: Mapped[float | None] = mapped_column(sa.Double)
    max_claim_batch: Mapped[int | None] = mapped_column(sa.Integer)
    max_claim_per_worker: Mapped[int | None] = mapped_column(sa.Integer)
    cluster_wide_cap: Mapped[int | None] = mapped_column(sa.Integer)
    queue_priorities: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    queue_max_concurrency: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    recovery_config: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    worker_started_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    children_memory_mb: Mapped[float | None] = mapped_column(sa.Double)

    __table_args__ = (
        within_limits("horsies_worker_states", ("snapshot_at", "worker_started_at")),
        sa.Index("horsies_worker_states_worker_idx", "worker_id", sa.text("snapshot_at DESC")),
        sa.Index("horsies_worker_states_snapshot_at_idx", "snapshot_at"),
    )


class WorkerModel(Base):
    """One row per running worker: its identity, the facts that prove that it is alive, and its own recovery
    settings."""

    __tablename__ = "horsies_workers"

    worker_id: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    started_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    last_heartbeat_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    hostname: Mapped[str | None] = mapped_column(sa.String(255))
    pid: Mapped[int | None] = mapped_column(sa.Integer)
    boot_id: Mapped[str | None] = mapped_column(sa.String(64))
    pid_namespace: Mapped[str | None] = mapped_column(sa.String(64))
    process_start: Mapped[int | None] = mapped_column(sa.BigInteger)
    liveness_key: Mapped[int | None] = mapped_column(sa.BigInteger)
    sweeping: Mapped[bool] = mapped_column(sa.Boolean, server_default=FALSE)
    queues: Mapped[list[str] | None] = mapped_column(ARRAY(sa.String))
    recovery: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    # ``metadata`` is taken by the declarative base.
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", JSONB, server_default=EMPTY_OBJECT)
    names_hash: Mapped[str | None] = mapped_column(sa.String(64))  # of the task names that it knows (O-31)
    drain_requested_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)  # somebody wants it to stop

    __table_args__ = (
        within_limits("horsies_workers", ("started_at", "last_heartbeat_at", "drain_requested_at")),
        sa.Index("horsies_workers_last_heartbeat_at_idx", "last_heartbeat_at"),
    )


class ScheduleStateModel(Base):
    """What the scheduler stores about each schedule."""

    __tablename__ = "horsies_schedule_state"

    schedule_name: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    last_run_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    next_run_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    last_task_id: Mapped[str | None] = mapped_column(sa.String(36))
    run_count: Mapped[int] = mapped_column(sa.Integer, server_default=ZERO)
    config_hash: Mapped[str | None] = mapped_column(sa.String(64))
    updated_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)


class ScheduleModel(Base):
    """Schedules that were added at run time."""

    __tablename__ = "horsies_schedules"

    name: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    definition: Mapped[dict[str, Any]] = mapped_column(JSONB)
    paused: Mapped[bool] = mapped_column(sa.Boolean, server_default=FALSE)
    created_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)


class MetaModel(Base):
    """``schema_version``, ``breaking_version`` and ``notify``."""

    __tablename__ = "horsies_meta"

    key: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    value: Mapped[str] = mapped_column(sa.Text)


# A queue table is rewritten again and again. So each page has room left, and vacuum starts long before a fifth of the
# rows is dead.
stored_with(
    TaskModel.__table__,
    fillfactor=75,
    autovacuum_vacuum_scale_factor=0.01,
    autovacuum_vacuum_threshold=2000,
    autovacuum_vacuum_cost_delay=1,
    autovacuum_analyze_scale_factor=0.02,
    autovacuum_analyze_threshold=2000,
)
# Rows of these tables are inserted and deleted, and never updated.
for _inserted in (TaskAttemptModel, TaskLogModel, TaskHeartbeatModel, WorkerStateModel):
    stored_with(
        _inserted.__table__,
        autovacuum_vacuum_scale_factor=0.05,
        autovacuum_vacuum_insert_scale_factor=0.1,
        autovacuum_analyze_scale_factor=0.05,
    )
# A row is rewritten every second while its task runs, within its page.
stored_with(
    TaskProgressModel.__table__,
    fillfactor=50,
    autovacuum_vacuum_scale_factor=0.02,
    autovacuum_vacuum_threshold=500,
)
