"""The tables by which workers act together, as SQLAlchemy describes them: who wants to be woken, what is in flight
under a cap, which task names are known, which tasks were left to others, and what senders in other languages need to
know about tasks; see ``task_pg`` for the conventions.
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


class WaitingModel(Base):
    """Who wants to be notified: ``queue:<name>``, ``task:<id>`` or ``monitor``, each until some time."""

    __tablename__ = "horsies_waiting"

    topic: Mapped[str] = mapped_column(sa.String(120), primary_key=True)
    holder: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    until: Mapped[datetime] = mapped_column(TIMESTAMP)
    queues: Mapped[list[str] | None] = mapped_column(ARRAY(sa.Text))  # that an idle worker serves
    wake_key: Mapped[int | None] = mapped_column(sa.BigInteger)  # the key of its liveness lock; names its channel too
    leaves: Mapped[list[str] | None] = mapped_column(ARRAY(sa.Text))  # task names that it leaves to others (O-31)

    # The rows may be lost in a server crash, because the sessions that waited are lost too.
    __table_args__ = (within_limits("horsies_waiting", ("until",)), {"prefixes": ["UNLOGGED"]})


class LoadModel(Base):
    """How many tasks of a counted queue are in flight, but for the moves since; the newest row of the queue counts. The
    queue ``*`` stands for all of them (D-56)."""

    __tablename__ = "horsies_load"

    queue_name: Mapped[str] = mapped_column(sa.String(100), primary_key=True)
    number: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    held: Mapped[int] = mapped_column(sa.BigInteger)
    running: Mapped[int] = mapped_column(sa.BigInteger)
    # Moves of earlier transactions are in the sums, except those of transactions that were still open.
    after_xid: Mapped[int] = mapped_column(sa.BigInteger, server_default=ZERO)
    open_xids: Mapped[list[int]] = mapped_column(ARRAY(sa.BigInteger), server_default=EMPTY_ARRAY)
    used_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)

    __table_args__ = (within_limits("horsies_load", ("used_at",)),)


class LoadMoveModel(Base):
    """What one statement has changed about the tasks in flight of a counted queue (D-56)."""

    __tablename__ = "horsies_load_moves"

    queue_name: Mapped[str] = mapped_column(sa.String(100), primary_key=True)
    xid: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    held: Mapped[int] = mapped_column(sa.Integer)
    running: Mapped[int] = mapped_column(sa.Integer)


class KnownNamesModel(Base):
    """A set of task names that workers know, once for all workers with the same set (O-31)."""

    __tablename__ = "horsies_known_names"

    names_hash: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    names: Mapped[list[str]] = mapped_column(ARRAY(sa.Text))
    since: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)  # there has been such a worker ever since
    seen_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)

    __table_args__ = (within_limits("horsies_known_names", ("since", "seen_at")),)


class LeftTaskModel(Base):
    """A task whose arguments a worker could not read, and which it left to others (O-32)."""

    __tablename__ = "horsies_left_tasks"

    task_id: Mapped[str] = mapped_column(sa.String(36), primary_key=True)
    left_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)
    reason: Mapped[str | None] = mapped_column(sa.Text)

    __table_args__ = (
        within_limits("horsies_left_tasks", ("left_at",)),
        sa.Index("horsies_left_tasks_left_at_idx", "left_at"),
    )


class TaskDefaultsModel(Base):
    """What a task is sent with unless the sender says otherwise, as the worker that started last knows it (D-59b)."""

    __tablename__ = "horsies_task_defaults"

    task_name: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    queue_name: Mapped[str] = mapped_column(sa.String(100))
    priority: Mapped[int] = mapped_column(sa.Integer)
    max_retries: Mapped[int] = mapped_column(sa.Integer, server_default=ZERO)
    task_options: Mapped[str | None] = mapped_column(sa.Text)
    flags: Mapped[str | None] = mapped_column(sa.Text)
    queues: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=EMPTY_OBJECT)  # with their priorities
    reject_bytes: Mapped[int | None] = mapped_column(sa.Integer)
    published_at: Mapped[datetime] = mapped_column(TIMESTAMP, server_default=NOW)

    __table_args__ = (within_limits("horsies_task_defaults", ("published_at",)),)


class EarlyTaskModel(Base):
    """A waiting task that SQL has sent before any worker had published its name, and what the sender has said about it
    (D-59c)."""

    __tablename__ = "horsies_early_tasks"

    task_id: Mapped[str] = mapped_column(sa.String(36), primary_key=True)
    task_name: Mapped[str] = mapped_column(sa.String(255))
    queue_name: Mapped[str | None] = mapped_column(sa.String(100))
    priority: Mapped[int | None] = mapped_column(sa.Integer)

    __table_args__ = (sa.Index("horsies_early_tasks_name_idx", "task_name", "task_id"),)


stored_with(WaitingModel.__table__, fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=500)
# Every row of these two is dead soon.
stored_with(LoadModel.__table__, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=500)
stored_with(LoadMoveModel.__table__, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000)
