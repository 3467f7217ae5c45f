"""Ears for the doorbell: what was rung, exactly and in order; and the words that say who wants to be rung."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.schema.install import install
from horsies.core.store import tasks, workers
from horsies.core.worker.service import Worker

CHANNELS = ("task_new", "task_queue_left", "task_queue_right", "task_queue_default", "task_done")
MODES = ("always", "when_waiting", "off")

Ears = Callable[[], Awaitable[list[tuple[str, str]]]]


@contextlib.asynccontextmanager
async def listening(url: str, *channels: str) -> AsyncIterator[Ears]:
    """What was heard on these channels, or on all documented ones, since the last time; a bell of our own, rung last,
    tells that all others have arrived."""
    async with (
        await AsyncConnection.connect(url, autocommit=True) as ear,
        await AsyncConnection.connect(url, autocommit=True) as hand,
    ):
        fence = f"fence_{ear.info.backend_pid}"
        for channel in (*(channels or CHANNELS), fence):
            await ear.execute(f'LISTEN "{channel}"'.encode())

        async def heard() -> list[tuple[str, str]]:
            await hand.execute(f"NOTIFY {fence}".encode())
            collected = []
            async for bell in ear.notifies(timeout=10):
                if bell.channel == fence:
                    return collected
                collected.append((bell.channel, bell.payload))
            raise AssertionError(f"the last bell never rang; heard {collected}")

        yield heard


def new(task_id: str, queue: str = "left") -> list[tuple[str, str]]:
    return [("task_new", task_id), (f"task_queue_{queue}", task_id)]


def done(task_id: str) -> list[tuple[str, str]]:
    return [("task_done", task_id)]


def wake_of(worker: Worker) -> str:
    """The channel on which this worker is woken."""
    return workers.wake_channel(worker.me.liveness_key)


async def words(db: AsyncConnection[Any]) -> set[tuple[str, str]]:
    """Who wants to be rung now: topics and holders."""
    cursor = await db.execute("SELECT topic, holder FROM horsies_waiting WHERE until > clock_timestamp()")
    return {(topic, holder) for topic, holder in await cursor.fetchall()}


async def topics(db: AsyncConnection[Any]) -> set[str]:
    return {topic for topic, _ in await words(db)}


async def change_mode(url: str, mode: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        await install(conn, notify=mode, change_notify=True)


async def remove_the_bell(db: AsyncConnection[Any], mode: str) -> None:
    """No notification about a task is sent by anybody, though the mode recorded is this one."""
    await install(db, notify=mode, change_notify=True)
    await db.execute("ALTER TABLE horsies_tasks DISABLE TRIGGER USER")
    await db.execute(
        "CREATE OR REPLACE FUNCTION horsies_ring(queue text, task_id text, giver text) RETURNS void"
        " AS 'BEGIN END' LANGUAGE plpgsql"
    )


def kill_listeners(url: str) -> int:
    """End every LISTEN session of this database; how many there were."""
    with psycopg.connect(url, autocommit=True) as conn:
        return conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name IN ('horsies listener', 'horsies worker listener')"
        ).rowcount


def after_each_look(monkeypatch: pytest.MonkeyPatch, then: Callable[[list[Any]], Awaitable[None]]) -> None:
    """Do something right after each look of a worker at its queues, before it knows what the look has found."""
    look = tasks.claim

    async def claim(*given: Any) -> list[Any]:
        rows = await look(*given)
        await then(rows)
        return rows

    monkeypatch.setattr(tasks, "claim", claim)
