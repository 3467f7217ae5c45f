"""One typed function per statement that gathers evidence about workers: who is registered, and whose session exists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from horsies.core.sql import load
from horsies.core.store.arrays import numbers
from horsies.core.store.tasks import Connection


class Judge(Protocol):
    """Which worker looks, and from where."""

    @property
    def worker_id(self) -> str: ...
    @property
    def hostname(self) -> str: ...
    @property
    def boot_id(self) -> str | None: ...
    @property
    def pid_namespace(self) -> str | None: ...


class Registered(NamedTuple):
    """The columns of `horsies_workers` that are evidence."""

    worker_id: str
    hostname: str | None
    boot_id: str | None
    pid_namespace: str | None
    pid: int | None
    process_start: int | None
    liveness_key: int
    is_sweeping: bool  # its tasks are enrolled in worker recovery
    is_silent: bool  # for more than two of its own intervals


async def neighbours(conn: Connection, me: Judge) -> list[Registered]:
    """The workers about which this one may find evidence."""
    params: dict[str, Any] = {
        "worker_id": me.worker_id,
        "hostname": me.hostname,
        "boot_id": me.boot_id,
        "pid_namespace": me.pid_namespace,
    }
    cursor = await conn.execute(load("workers/neighbours"), params)
    return [Registered(*row) for row in await cursor.fetchall()]


async def held_liveness(conn: Connection, keys: Iterable[int]) -> set[int]:
    """Those of these liveness locks that a session holds."""
    cursor = await conn.execute(load("workers/held_liveness"), {"keys": numbers(keys)})
    return {row[0] for row in await cursor.fetchall()}


async def bury(conn: Connection, worker_id: str) -> bool:
    """Delete the row of a dead worker, unless it still has tasks."""
    cursor = await conn.execute(load("workers/bury"), {"worker_id": worker_id})
    return cursor.rowcount > 0
