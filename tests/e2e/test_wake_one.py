"""A fleet of idle workers (D-61): a new task wakes one of them, what it cannot take wakes the next, and a worker that
is gone, paused or full costs time only. Mostly with polling out of reach, so that nothing else can help."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.store import tasks
from horsies.core.worker.service import Worker
from tests.doorbell_support import change_mode, words
from tests.e2e.conftest import DOORBELL, Configured
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess, running_worker

pytestmark = pytest.mark.e2e

LOCATOR = f"{DOORBELL}:app"
NEVER = "300000"
INSERT = (
    "INSERT INTO horsies_tasks (id, task_name, queue_name, args)"
    " VALUES (%s, %s, 'left', jsonb_build_array(%s::text)::text)"
)


async def insert(db: AsyncConnection, task: str, task_id: str) -> None:
    await db.execute(INSERT, [task_id, task, task_id])


@contextlib.asynccontextmanager
async def fleet(app: Any, *queues: str) -> AsyncIterator[list[Worker]]:
    """A worker of one process for each of these queues; all sleep until they are woken."""
    async with contextlib.AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(
                running_worker(app, app_locator=LOCATOR, queues=(queue,), processes=1, run_ahead_ms=0)
            )
            for queue in queues
        ]
        await all_sleep(workers)
        yield workers


def sleeps(worker: Worker) -> bool:
    """The growing pauses are over: only a bell can wake it now."""
    return hasattr(worker, "_claimer") and worker._claimer._look_at > monotonic() + 60


async def all_sleep(workers: list[Worker]) -> None:
    await eventually(lambda: all(map(sleeps, workers)), timeout=60)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each worker has looked for tasks."""
    counted: Counter[str] = Counter()
    look = tasks.claim

    async def claim(conn: Any, who: tasks.Claimant, *given: Any) -> list[Any]:
        counted[who.worker_id] += 1
        return await look(conn, who, *given)

    monkeypatch.setattr(tasks, "claim", claim)
    return counted


@pytest.mark.parametrize("mode", ["always", "when_waiting"])
async def test_d61_a_new_task_wakes_one_worker_of_its_queue(
    doorbell: Configured, database_url: str, db: AsyncConnection, rows: Rows, looks: Counter[str], mode: str
) -> None:
    app = doorbell(NOTIFY=mode, POLL_MS=NEVER).app
    await change_mode(database_url, mode)
    async with fleet(app, "left", "left", "left", "right") as workers:
        for n in range(3):
            looks.clear()
            await insert(db, "note", f"task-{n}")
            await rows.until(f"task-{n}", "COMPLETED")
            await all_sleep(workers)
            [(worker_id,)] = await (
                await db.execute("SELECT worker_id FROM horsies_task_attempts WHERE task_id = %s", [f"task-{n}"])
            ).fetchall()
            assert set(looks) == {worker_id}, "nobody else has looked"


async def test_d61_tasks_of_one_transaction_reach_every_idle_worker(
    doorbell: Configured, db: AsyncConnection, rows: Rows, traces: Path
) -> None:
    """One notification for all of them, because they are the same: each worker that is full wakes the next."""
    app = doorbell(NOTIFY="always", POLL_MS=NEVER).app
    held = [f"held-{n}" for n in range(3)]
    async with fleet(app, "left", "left", "left"):
        async with db.transaction():
            for name in held:
                await insert(db, "hold", name)
        await eventually(lambda: all((traces / name).exists() for name in held), timeout=30)
        for name in held:
            (traces / f"{name}.go").touch()
            await rows.until(name, "COMPLETED")


async def test_d61_a_full_worker_hands_its_bell_on(
    doorbell: Configured, db: AsyncConnection, rows: Rows, traces: Path
) -> None:
    """The transaction chose the worker while it was idle, and rings when it is not."""
    app = doorbell(NOTIFY="always", POLL_MS=NEVER).app
    async with fleet(app, "left", "left") as workers:
        async with await AsyncConnection.connect(rows._url) as late:
            await late.execute(INSERT, ["late", "note", "late"])
            await insert(db, "hold", "held")
            await eventually((traces / "held").exists, timeout=30)
            [busy] = [worker for worker in workers if worker._in_hand.held]

            async def has_no_mark() -> bool:
                return ("worker", busy.worker_id) not in await words(db)

            await eventually(has_no_mark)
            await all_sleep([worker for worker in workers if worker is not busy])
            await late.commit()
        await rows.until("late", "COMPLETED")
        (traces / "held.go").touch()
        await rows.until("held", "COMPLETED")


async def newest_mark(db: AsyncConnection) -> str | None:
    cursor = await db.execute("SELECT holder FROM horsies_waiting WHERE topic = 'worker' ORDER BY age(xmin) LIMIT 1")
    row = await cursor.fetchone()
    return row and str(row[0])


async def test_d61_a_worker_that_was_killed_is_not_rung_for(
    doorbell: Configured, database_url: str, db: AsyncConnection, rows: Rows
) -> None:
    app = doorbell(NOTIFY="always", POLL_MS=NEVER).app
    async with fleet(app, "left") as [living]:
        with WorkerProcess(database_url, locator=LOCATOR) as doomed:

            async def is_newest() -> bool:
                return await newest_mark(db) not in (None, living.worker_id)

            await eventually(is_newest, timeout=60)
            doomed.process.kill()
            await asyncio.to_thread(doomed.process.wait)

        async def is_gone() -> bool:
            [(held,)] = await (
                await db.execute(
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'"
                    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                )
            ).fetchall()
            return bool(held == 1)

        await eventually(is_gone)
        assert await is_newest(), "its mark is left behind"
        await insert(db, "note", "for the living")
        await rows.until("for the living", "COMPLETED")


async def test_w62_a_worker_that_is_stopped_costs_a_poll_of_the_others(
    doorbell: Configured, database_url: str, db: AsyncConnection, rows: Rows
) -> None:
    app = doorbell(NOTIFY="always", POLL_MS="2000").app
    async with running_worker(app, app_locator=LOCATOR, queues=("left",), processes=1) as living:
        with WorkerProcess(database_url, locator=LOCATOR) as paused:

            async def is_newest() -> bool:
                return await newest_mark(db) not in (None, living.worker_id)

            await eventually(is_newest, timeout=60)
            paused.process.send_signal(signal.SIGSTOP)
            await insert(db, "note", "for the living")
            await rows.until("for the living", "COMPLETED")
            assert (await rows.attempts("for the living"))[0]["worker_id"] == living.worker_id
