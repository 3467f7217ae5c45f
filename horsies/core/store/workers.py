"""One typed function per statement about workers: registration, liveness, snapshots, and the waiting list for
notifications.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from psycopg.types.json import Jsonb

from horsies.core.sql import load
from horsies.core.store.tasks import Connection


async def register(conn: Connection, row: Mapping[str, Any]) -> None:
    """Insert the worker's row, or refresh its heartbeat."""
    json_columns = ("recovery", "metadata")
    await conn.execute(load("workers/register"), {**row, **{name: Jsonb(row[name]) for name in json_columns}})


async def unregister(conn: Connection, worker_id: str) -> None:
    await conn.execute(load("workers/unregister"), {"worker_id": worker_id})


async def hold_liveness(conn: Connection, key: int) -> None:
    """Take the worker's liveness lock for as long as this session lives."""
    await conn.execute(load("workers/hold_liveness"), {"key": key})


async def snapshot(conn: Connection, row: Mapping[str, Any]) -> None:
    json_columns = ("queue_priorities", "queue_max_concurrency", "recovery_config")
    await conn.execute(load("workers/snapshot"), {**row, **{name: Jsonb(row[name]) for name in json_columns}})


async def doze(conn: Connection, worker_id: str, queues: list[str], until: timedelta) -> str:
    """Record that this worker waits for these queues, if the recorded notify mode requires it; return that mode."""
    params = {"worker_id": worker_id, "queues": queues, "until": until}
    [(mode,)] = await (await conn.execute(load("workers/doze"), params)).fetchall()
    return str(mode)


async def rise(conn: Connection, worker_id: str, queues: list[str]) -> None:
    await conn.execute(load("workers/rise"), {"worker_id": worker_id, "queues": queues})


async def pong(conn: Connection, payload: str) -> None:
    """Answer a ping."""
    await conn.execute(load("workers/pong"), {"payload": payload})


async def forget_sleepers(conn: Connection) -> None:
    """Delete some rows of the waiting list whose time is over."""
    await conn.execute(load("workers/forget_sleepers"))
