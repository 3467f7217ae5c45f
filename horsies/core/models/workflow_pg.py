"""The tables of workflows and their nodes, as SQLAlchemy describes them; see ``task_pg`` for the conventions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Computed,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from horsies.core.models.task_pg import (
    EMPTY_ARRAY,
    EMPTY_OBJECT,
    FALSE,
    NOW,
    TIMESTAMP,
    ZERO,
    Base,
    names_of,
    one_of,
    stored_with,
)
from horsies.core.types.status import WorkflowStatus, WorkflowTaskStatus

IS_OVER = "status = 'RUNNING' AND open_nodes = 0"
IS_OPEN = one_of("status", ("PENDING", "RUNNING", "PAUSED"))
IS_IN_FLIGHT = one_of("status", ("READY", "ENQUEUED", "RUNNING"))


class WorkflowModel(Base):
    """One row per workflow started."""

    __tablename__ = "horsies_workflows"

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    name: Mapped[str] = mapped_column(String(255))
    definition_key: Mapped[str] = mapped_column(String(255))
    status: Mapped[WorkflowStatus] = mapped_column(names_of(WorkflowStatus, 20), server_default="PENDING")
    on_error: Mapped[str] = mapped_column(String(10), server_default="FAIL")
    output_index: Mapped[int | None] = mapped_column(Integer)
    success_policy: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    result: Mapped[str | None] = mapped_column(Text)
    error: Mapped[str | None] = mapped_column(Text)
    error_code: Mapped[str | None] = mapped_column(Text)
    parent_workflow_id: Mapped[str | None] = mapped_column(
        String(36), ForeignKey("horsies_workflows.id", ondelete="CASCADE")
    )
    parent_task_index: Mapped[int | None] = mapped_column(Integer)
    root_workflow_id: Mapped[str | None] = mapped_column(String(36))
    depth: Mapped[int] = mapped_column(Integer, server_default=ZERO)
    good_until: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    open_nodes: Mapped[int] = mapped_column(Integer)
    sent_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    created_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    started_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    paused_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    completed_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    # All nodes of this workflow have ended, but the workflow has not. An index on `open_nodes` itself would be
    # written whenever a node ends, and all other indexes with it.
    is_over: Mapped[bool] = mapped_column(Boolean, Computed(IS_OVER, persisted=True))

    __table_args__ = (
        CheckConstraint(one_of("status", tuple(WorkflowStatus.__members__)), name="horsies_workflows_status_check"),
        CheckConstraint(one_of("on_error", ("FAIL", "PAUSE")), name="horsies_workflows_on_error_check"),
        Index("horsies_workflows_status_idx", "status"),
        Index("horsies_workflows_name_idx", "name"),
        Index("horsies_workflows_definition_key_idx", "definition_key"),
        Index("horsies_workflows_parent_workflow_id_idx", "parent_workflow_id"),
        Index("horsies_workflows_completed_at_idx", "completed_at"),
        Index("horsies_workflows_over_idx", "id", postgresql_where=sql("is_over")),
        Index(
            "horsies_workflows_deadline_idx",
            "good_until",
            "id",
            postgresql_where=sql(f"good_until IS NOT NULL AND {IS_OPEN}"),
        ),
    )


class WorkflowTaskModel(Base):
    """One row per node of a workflow; its edges and their counters are columns."""

    __tablename__ = "horsies_workflow_tasks"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    workflow_id: Mapped[str] = mapped_column(String(36), ForeignKey("horsies_workflows.id", ondelete="CASCADE"))
    task_index: Mapped[int] = mapped_column(Integer)
    node_id: Mapped[str] = mapped_column(String(140))
    node_type: Mapped[str] = mapped_column(String(16))
    task_name: Mapped[str] = mapped_column(String(255))
    task_kwargs: Mapped[str | None] = mapped_column(Text)
    queue_name: Mapped[str | None] = mapped_column(String(100))
    priority: Mapped[int | None] = mapped_column(Integer)
    task_options: Mapped[str | None] = mapped_column(Text)
    flags: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    good_until: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    dependencies: Mapped[list[int]] = mapped_column(ARRAY(Integer), server_default=EMPTY_ARRAY)
    dependents: Mapped[list[int]] = mapped_column(ARRAY(Integer), server_default=EMPTY_ARRAY)
    deps_total: Mapped[int] = mapped_column(Integer, server_default=ZERO)
    deps_completed: Mapped[int] = mapped_column(Integer, server_default=ZERO)
    deps_failed: Mapped[int] = mapped_column(Integer, server_default=ZERO)
    deps_skipped: Mapped[int] = mapped_column(Integer, server_default=ZERO)
    args_from: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=EMPTY_OBJECT)
    workflow_ctx_from: Mapped[list[int] | None] = mapped_column(ARRAY(Integer))
    join_type: Mapped[str] = mapped_column(String(10), server_default="all")
    min_success: Mapped[int | None] = mapped_column(Integer)
    allow_failed_deps: Mapped[bool] = mapped_column(Boolean, server_default=FALSE)
    status: Mapped[WorkflowTaskStatus] = mapped_column(names_of(WorkflowTaskStatus, 20), server_default="PENDING")
    task_id: Mapped[str | None] = mapped_column(String(36), ForeignKey("horsies_tasks.id", ondelete="SET NULL"))
    previous_task_ids: Mapped[list[str]] = mapped_column(ARRAY(String(36)), server_default=EMPTY_ARRAY)
    map_index: Mapped[int | None] = mapped_column(Integer)
    map_position: Mapped[int | None] = mapped_column(Integer)
    map_options: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    sub_workflow_key: Mapped[str | None] = mapped_column(String(255))
    sub_workflow_id: Mapped[str | None] = mapped_column(
        String(36), ForeignKey("horsies_workflows.id", ondelete="SET NULL")
    )
    sub_workflow_summary: Mapped[str | None] = mapped_column(Text)
    result: Mapped[str | None] = mapped_column(Text)
    error_code: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    ready_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    enqueued_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    started_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    completed_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)

    __table_args__ = (
        UniqueConstraint("workflow_id", "task_index", name="horsies_workflow_tasks_workflow_id_task_index_key"),
        UniqueConstraint("workflow_id", "node_id", name="horsies_workflow_tasks_workflow_id_node_id_key"),
        CheckConstraint(
            one_of("status", tuple(WorkflowTaskStatus.__members__)), name="horsies_workflow_tasks_status_check"
        ),
        CheckConstraint(
            one_of("node_type", ("TASK", "SUBWORKFLOW", "MAP", "ELEMENT")),
            name="horsies_workflow_tasks_node_type_check",
        ),
        CheckConstraint(one_of("join_type", ("all", "any", "quorum")), name="horsies_workflow_tasks_join_type_check"),
        Index(
            "horsies_workflow_tasks_task_id_idx", "task_id", unique=True, postgresql_where=sql("task_id IS NOT NULL")
        ),
        Index("horsies_workflow_tasks_status_idx", "workflow_id", "status", "task_index"),
        Index(
            "horsies_workflow_tasks_sub_workflow_id_idx",
            "sub_workflow_id",
            postgresql_where=sql("sub_workflow_id IS NOT NULL"),
        ),
        # The walk of R-30 reads nodes in the order in which they are locked.
        Index("horsies_workflow_tasks_in_flight_idx", "workflow_id", "task_index", postgresql_where=sql(IS_IN_FLIGHT)),
    )


stored_with(
    WorkflowTaskModel.__table__,
    fillfactor=80,
    autovacuum_vacuum_scale_factor=0.02,
    autovacuum_analyze_scale_factor=0.05,
)
