"""The tables that only dashboards and commands read, as SQLAlchemy describes them: statistics by minute, and what
people have done; see ``task_pg`` for the conventions.
"""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from horsies.core.models.task_pg import (
    EMPTY_ARRAY,
    EMPTY_OBJECT,
    NOW,
    TIMESTAMP,
    ZERO,
    Base,
    stored_with,
    within_limits,
)


class RollupModel(Base):
    """What became of the tasks of one queue, name and error code within one span of time, and how long they took; or,
    as a row without a task name, what was waiting and running in a queue (D-59)."""

    __tablename__ = "horsies_rollup"

    span: Mapped[int] = mapped_column(sa.Integer, primary_key=True, autoincrement=False)  # seconds: 60, 600 or 3600
    start_at: Mapped[datetime] = mapped_column(TIMESTAMP, primary_key=True)
    queue_name: Mapped[str] = mapped_column(sa.String(100), primary_key=True)
    task_name: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    error_code: Mapped[str] = mapped_column(sa.String(255), primary_key=True)  # empty: none
    completed: Mapped[int] = mapped_column(sa.BigInteger, server_default=ZERO)
    failed: Mapped[int] = mapped_column(sa.BigInteger, server_default=ZERO)
    retried: Mapped[int] = mapped_column(sa.BigInteger, server_default=ZERO)
    expired: Mapped[int] = mapped_column(sa.BigInteger, server_default=ZERO)
    cancelled: Mapped[int] = mapped_column(sa.BigInteger, server_default=ZERO)
    wait_seconds: Mapped[float] = mapped_column(sa.Double, server_default=ZERO)
    wait_counts: Mapped[list[int]] = mapped_column(ARRAY(sa.BigInteger), server_default=EMPTY_ARRAY)
    run_seconds: Mapped[float] = mapped_column(sa.Double, server_default=ZERO)
    run_counts: Mapped[list[int]] = mapped_column(ARRAY(sa.BigInteger), server_default=EMPTY_ARRAY)
    example_id: Mapped[str | None] = mapped_column(sa.String(36))  # a task that failed
    waiting: Mapped[int | None] = mapped_column(sa.BigInteger)
    oldest_due_seconds: Mapped[float | None] = mapped_column(sa.Double)
    running: Mapped[int | None] = mapped_column(sa.BigInteger)

    __table_args__ = (within_limits("horsies_rollup", ("start_at",)),)


class AuditModel(Base):
    """What somebody did, or tried to do (D-59a)."""

    __tablename__ = "horsies_audit"

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    ended_at: Mapped[datetime | None] = mapped_column(TIMESTAMP)
    actor: Mapped[str] = mapped_column(sa.String(255))
    action: Mapped[str] = mapped_column(sa.String(64))
    target_kind: Mapped[str] = mapped_column(sa.String(32))
    target_ids: Mapped[list[str]] = mapped_column(ARRAY(sa.Text), server_default=EMPTY_ARRAY)
    outcome: Mapped[str] = mapped_column(sa.String(32), server_default="begun")
    details: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=EMPTY_OBJECT)

    __table_args__ = (
        within_limits("horsies_audit", ("at", "ended_at")),
        sa.Index("horsies_audit_at_idx", "at"),
        sa.Index("horsies_audit_target_idx", "target_ids", postgresql_using="gin"),
    )


# A row is rewritten by each worker once a minute, within its page, until its span is over.
stored_with(
    RollupModel.__table__,
    fillfactor=70,
    autovacuum_vacuum_scale_factor=0.05,
    autovacuum_analyze_scale_factor=0.05,
)
