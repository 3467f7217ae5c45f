"""The tables of workflows and their nodes, as SQLAlchemy describes them; see ``task_pg`` for the conventions."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from horsies.core.models import task_pg
from horsies.core.types import WorkflowStatus, WorkflowTaskStatus

IS_OVER = "status = 'RUNNING' AND open_nodes = 0"
IS_OPEN = task_pg.one_of("status", ("PENDING", "RUNNING", "PAUSED"))
IS_IN_FLIGHT = task_pg.one_of("status", ("READY", "ENQUEUED", "RUNNING"))
# fmt: off
FLOW_DATES = (
    "good_until", "sent_at", "created_at", "updated_at", "started_at", "paused_at", "completed_at",
)
FLOW_COUNTERS = ("depth", "open_nodes")
NODE_DATES = ("good_until", "created_at", "updated_at", "ready_at", "enqueued_at", "started_at", "completed_at")
NODE_COUNTERS = ("task_index", "deps_total", "deps_completed", "deps_failed", "deps_skipped")
# fmt: on


class WorkflowModel(task_pg.Base):
    """One row per workflow started."""

    __tablename__ = "horsies_workflows"

    id: Mapped[str] = mapped_column(sa.String(36), primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(255))
    definition_key: Mapped[str] = mapped_column(sa.String(255))
    status: Mapped[WorkflowStatus] = mapped_column(task_pg.names_of(WorkflowStatus, 20), server_default="PENDING")
    on_error: Mapped[str] = mapped_column(sa.String(10), server_default="FAIL")
    output_index: Mapped[int | None] = mapped_column(sa.Integer)
    success_policy: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    result: Mapped[str | None] = mapped_column(sa.Text)
    error: Mapped[str | None] = mapped_column(sa.Text)
    error_code: Mapped[str | None] = mapped_column(sa.Text)
    parent_workflow_id: Mapped[str | None] = mapped_column(
        sa.String(36), sa.ForeignKey("horsies_workflows.id", ondelete="CASCADE")
    )
    parent_task_index: Mapped[int | None] = mapped_column(sa.Integer)
    root_workflow_id: Mapped[str | None] = mapped_column(sa.String(36))
    depth: Mapped[int] = mapped_column(sa.Integer, server_default=task_pg.ZERO)
    good_until: Mapped[datetime | None] = mapped_column(task_pg.TIMESTAMP)
    open_nodes: Mapped[int] = mapped_column(sa.Integer)
    sent_at: Mapped[datetime] = mapped_column(task_pg.TIMESTAMP, server_default=task_pg.NOW)
    created_at: Mapped[datetime] = mapped_column(task_pg.TIMESTAMP, server_default=task_pg.NOW)
    updated_at: Mapped[datetime] = mapped_column(task_pg.TIMESTAMP, server_default=task_pg.NOW)
    started_at: Mapped[datetime | None] = mapped_column(task_pg.TIMESTAMP)
    paused_at: Mapped[datetime | None] = mapped_column(task_pg.TIMESTAMP)
    completed_at: Mapped[datetime | None] = mapped_column(task_pg.TIMESTAMP)
    # All nodes of this workflow have ended, but the workflow has not. An index on `open_nodes` itself would be
    # written whenever a node ends, and all other indexes with it.
    is_over: Mapped[bool] = mapped_column(sa.Boolean, sa.Computed(IS_OVER, persisted=True))

    __table_args__ = (
        sa.CheckConstraint(
            task_pg.one_of("status", tuple(WorkflowStatus.__members__)), name="horsies_workflows_status_check"
        ),
        sa.CheckConstraint(task_pg.one_of("on_error", ("FAIL", "PAUSE")), name="horsies_workflows_on_error_check"),
        task_pg.within_limits("horsies_workflows", FLOW_DATES, FLOW_COUNTERS),
        sa.Index("horsies_workflows_status_idx", "status"),
        sa.Index("horsies_workflows_name_idx", "name"),
        sa.Index("horsies_workflows_definition_key_idx", "definition_key"),
        sa.Index("horsies_workflows_parent_workflow_id_idx", "parent_workflow_id"),
        sa.Index("horsies_workflows_completed_at_idx", "completed_at"),
        sa.Index("horsies_workflows_over_idx", "id", postgresql_where=sa.text("is_over")),
        sa.Index(
            "horsies_workflows_deadline_idx",
            "good_until",
            "id",
            postgresql_where=sa.text(f"good_until IS NOT NULL AND {IS_OPEN}"),
        ),
    )


class WorkflowTaskModel(task_pg.Base):
    """One row per node of a workflow; its edges and their counters are columns."""

    __tablename__ = "horsies_workflow_tasks"

    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    workflow_id: Mapped[str] = mapped_column(sa.String(36), sa.ForeignKey("horsies_workflows.id", ondelete="CASCADE"))
    task_index: Mapped[int] = mapped_column(sa.Integer)
    node_id: Mapped[str] = mapped_column(sa.String(140))
    node_type: Mapped[str] = mapped_column(sa.String(16))
    task_name: Mapped[str] = mapped_column(sa.String(255))
    task_kwargs: Mapped[str | None] = mapped_column(sa.Text)
    queue_name: Mapped[str | None] = mapped_column(sa.String(100))
    priority: Mapped[int | None] = mapped_column(sa.Integer)
    task_options: Mapped[str | None] = mapped_column(sa.Text)
    flags: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    good_until: Mapped[datetime | None] = mapped_column(task_pg.TIMESTAMP)
    dependencies: Mapped[list[int]] = mapped_column(ARRAY(sa.Integer), server_default=task_pg.EMPTY_ARRAY)
    dependents: Mapped[list[int]] = mapped_column(ARRAY(sa.Integer), server_default=task_pg.EMPTY_ARRAY)
    deps_total: Mapped[int] = mapped_column(sa.Integer, server_default=task_pg.ZERO)
    deps_completed: Mapped[int] = mapped_column(sa.Integer, server_default=task_pg.ZERO)
    deps_failed: Mapped[int] = mapped_column(sa.Integer, server_default=task_pg.ZERO)
    deps_skipped: Mapped[int] = mapped_column(sa.Integer, server_default=task_pg.ZERO)
    args_from: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=task_pg.EMPTY_OBJECT)
    workflow_ctx_from: Mapped[list[int] | None] = mapped_column(ARRAY(sa.Integer))
    join_type: Mapped[str] = mapped_column(sa.String(10), server_default="all")
    min_success: Mapped[int | None] = mapped_column(sa.Integer)
    allow_failed_deps: Mapped[bool] = mapped_column(sa.Boolean, server_default=task_pg.FALSE)
    status: Mapped[WorkflowTaskStatus] = mapped_column(
        task_pg.names_of(WorkflowTaskStatus, 20), server_default="PENDING"
    )
    task_id: Mapped[str | None] = mapped_column(sa.String(36), sa.ForeignKey("horsies_tasks.id", ondelete="SET NULL"))
    previous_task_ids: Mapped[list[str]] = mapped_column(ARRAY(sa.String(36)), server_default=task_pg.EMPTY_ARRAY)
    map_index: Mapped[int | None] = mapped_column(sa.Integer)
    map_position: Mapped[int | None] = mapped_column(sa.Integer)
    map_options: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    sub_workflow_key: Mapped[str | None] = mapped_column(sa.String(255))
    sub_workflow_id: Mapped[str | None] = mapped_column(
        sa.String(36), sa.ForeignKey("horsies_workflows.id", ondelete="SET NULL")
    )
    sub_workflow_summary: Mapped[str | None] = mapped_column(sa.Text)
    result: Mapped[str | None] = mapped_column(sa.Text)
    error_code: Mapped[str | None] = mapped_column(sa.Text)
    created_at: Mapped[datetime] = mapped_column(task_pg.TIMESTAMP, server_default=task_pg.NOW)
    updated_at: Mapped[datetime] = mapped_column(task_pg.TIMESTAMP, server_default=task_pg.NOW)
    ready_at: Mapped[datetime | None] = mapped_column(task_pg.TIMESTAMP)
    enqueued_at: Mapped[datetime | None] = mapped_column(task_pg.TIMESTAMP)
    started_at: Mapped[datetime | None] = mapped_column(task_pg.TIMESTAMP)
    completed_at: Mapped[datetime | None] = mapped_column(task_pg.TIMESTAMP)

    __table_args__ = (
        sa.UniqueConstraint("workflow_id", "task_index", name="horsies_workflow_tasks_workflow_id_task_index_key"),
        sa.UniqueConstraint("workflow_id", "node_id", name="horsies_workflow_tasks_workflow_id_node_id_key"),
        sa.CheckConstraint(
            task_pg.one_of("status", tuple(WorkflowTaskStatus.__members__)), name="horsies_workflow_tasks_status_check"
        ),
        sa.CheckConstraint(
            task_pg.one_of("node_type", ("TASK", "SUBWORKFLOW", "MAP", "ELEMENT")),
            name="horsies_workflow_tasks_node_type_check",
        ),
        sa.CheckConstraint(
            task_pg.one_of("join_type", ("all", "any", "quorum")), name="horsies_workflow_tasks_join_type_check"
        ),
        task_pg.within_limits("horsies_workflow_tasks", NODE_DATES, NODE_COUNTERS),
        sa.Index(
            "horsies_workflow_tasks_task_id_idx",
            "task_id",
            unique=True,
            postgresql_where=sa.text("task_id IS NOT NULL"),
        ),
        sa.Index("horsies_workflow_tasks_status_idx", "workflow_id", "status", "task_index"),
        sa.Index(
            "horsies_workflow_tasks_sub_workflow_id_idx",
            "sub_workflow_id",
            postgresql_where=sa.text("sub_workflow_id IS NOT NULL"),
        ),
        # The walk of R-30 reads nodes in the order in which they are locked.
        sa.Index(
            "horsies_workflow_tasks_in_flight_idx", "workflow_id", "task_index", postgresql_where=sa.text(IS_IN_FLIGHT)
        ),
    )


task_pg.stored_with(
    WorkflowTaskModel.__table__,
    fillfactor=80,
    autovacuum_vacuum_scale_factor=0.02,
    autovacuum_analyze_scale_factor=0.05,
)
