"""Exactly what rings in each mode of the doorbell (D-60), with real workers and clients; in every mode tasks flow."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import TaskHandle
from horsies.core.worker.service import Worker
from tests.doorbell_support import MODES, change_mode, done, listening, new, topics, wake_of, words
from tests.e2e.conftest import DOORBELL, Configured
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e

LOCATOR = f"{DOORBELL}:app"
NEVER = "300000"  # polling does not come to the rescue: whoever was not rung sleeps on


async def send(task: Any, *args: Any) -> TaskHandle[Any]:
    handle: TaskHandle[Any] = (await task.send_async(*args)).unwrap()
    return handle


async def is_asleep(db: AsyncConnection, mode: str, worker: Worker) -> bool:
    """In the mode off nobody leaves word."""
    return worker._claimer.is_dry and (mode == "off" or ("worker", worker.worker_id) in await words(db))


@pytest.mark.parametrize("mode", MODES)
async def test_d60_what_rings_when(
    doorbell: Configured, database_url: str, db: AsyncConnection, rows: Rows, traces: Path, mode: str
) -> None:
    """One situation after the other: who is there, what happens, and every bell that is rung then."""
    tasks = doorbell(NOTIFY=mode, POLL_MS="1000" if mode == "off" else NEVER)
    await change_mode(database_url, mode)
    always = mode == "always"
    rings = mode != "off"
    async with listening(database_url) as heard:
        handle = await send(tasks.note, "nobody is there")
        assert await heard() == (new(handle.task_id) if always else [])

        async with (
            running_worker(tasks.app, app_locator=LOCATOR, processes=1) as worker,
            listening(database_url, wake_of(worker)) as called,
        ):

            async def calls() -> int:
                return len(await called())

            await rows.until(handle.task_id, "COMPLETED")
            assert await heard() == (done(handle.task_id) if always else [])

            await eventually(lambda: is_asleep(db, mode, worker))
            handle = await send(tasks.note, "the worker sleeps, nobody waits")
            await rows.until(handle.task_id, "COMPLETED")
            assert await heard() == ([*new(handle.task_id), *done(handle.task_id)] if always else [])
            assert await calls() == (1 if rings else 0)

            await eventually(lambda: is_asleep(db, mode, worker))
            handle = await send(tasks.hold, "waited")
            waiting = asyncio.create_task(handle.get_async(timeout_ms=30_000))
            await eventually(lambda: (traces / "waited").exists())
            if mode == "when_waiting":
                await eventually(lambda: _has(topics(db), f"task:{handle.task_id}"))
            (traces / "waited.go").touch()
            assert (await waiting).unwrap() == 1
            ends = done(handle.task_id) if rings else []
            assert await heard() == ([*new(handle.task_id), *ends] if always else ends)
            assert await calls() == (1 if rings else 0)

            await eventually(lambda: is_asleep(db, mode, worker))
            handle = await send(tasks.flaky, "again")
            await rows.until(handle.task_id, "COMPLETED")
            twice = [*new(handle.task_id), *new(handle.task_id)]  # T-80: once more for the retry
            assert await heard() == (twice + done(handle.task_id) if always else [])
            # On a slow machine it had been full for too long to be rung for its own retry, and remembers that itself.
            assert await calls() in ((1, 2) if rings else (0,))

            busy = await send(tasks.hold, "busy")
            await eventually(lambda: (traces / "busy").exists())
            await eventually(lambda: _none(topics(db)), what="a worker without room takes its word back")
            await heard()
            await calls()
            handle = await send(tasks.note, "nobody sleeps")
            assert await heard() == (new(handle.task_id) if always else [])
            assert await calls() == 0
            (await handle.cancel_async()).unwrap()
            assert await heard() == (done(handle.task_id) if always else [])
            (traces / "busy.go").touch()
            await rows.until(busy.task_id, "COMPLETED")
    assert await words(db) == set()


async def _has(found: Any, wanted: str) -> bool:
    return wanted in await found


async def _none(found: Any) -> bool:
    return not await found
