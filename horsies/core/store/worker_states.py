"""A typed function per statement that reads what workers wrote about themselves."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row, dict_row

from horsies.core.models.broker import WorkerStateSnapshot
from horsies.core.sql import load


async def newest(conn: AsyncConnection[Any]) -> list[WorkerStateSnapshot]:
    """The newest snapshot of each worker, by worker id."""
    async with conn.cursor(row_factory=class_row(WorkerStateSnapshot)) as cursor:
        await cursor.execute(load("workers/newest_states"))
        return await cursor.fetchall()


async def history(conn: AsyncConnection[Any], worker_id: str, *, limit: int | None) -> list[WorkerStateSnapshot]:
    """The snapshots of one worker, newest first."""
    async with conn.cursor(row_factory=class_row(WorkerStateSnapshot)) as cursor:
        await cursor.execute(load("workers/state_history"), {"worker_id": worker_id, "limit": limit})
        return await cursor.fetchall()


async def stats(conn: AsyncConnection[Any]) -> list[dict[str, Any]]:
    """For each process that runs tasks: how many, since when, and its last heartbeat."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load("workers/stats"))
        return await cursor.fetchall()
