"""Bells that are missed (D-60, W-62): the moments between looking, leaving word and ringing, words that are lost or
stay behind, a mode that changes. Mostly with polling out of reach, so that nothing but what is tested can help.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, IsolationLevel

from horsies import TaskHandle
from horsies.core import embedded
from horsies.core.producer import waiter
from horsies.core.worker.service import Worker
from tests.doorbell_support import after_each_look, change_mode, done, listening, new, topics, wake_of, words
from tests.e2e.conftest import DOORBELL, Configured, configurable
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess, running_worker

pytestmark = pytest.mark.e2e

LOCATOR = f"{DOORBELL}:app"
NEVER = "300000"
INSERT = "INSERT INTO horsies_tasks (id, task_name, queue_name, args) VALUES (%s, 'note', 'left', '[\"x\"]')"


async def send(task: Any, *args: Any) -> TaskHandle[Any]:
    handle: TaskHandle[Any] = (await task.send_async(*args)).unwrap()
    return handle


async def sleeps_for_long(worker: Worker) -> None:
    """The growing pauses are over: now only a bell, or the poll in five minutes, can wake it."""
    await eventually(lambda: hasattr(worker, "_claimer") and worker._claimer._look_at > monotonic() + 60)


async def has_left_word(db: AsyncConnection, worker: Worker) -> bool:
    return ("worker", worker.worker_id) in await words(db)


async def test_d60_an_insert_that_looked_before_the_word_was_there_is_found_after_a_pause(
    doorbell: Configured, database_url: str, db: AsyncConnection, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trigger looks, the worker leaves word, the worker looks again, the insert commits: nobody has rung."""
    tasks = doorbell(NOTIFY="when_waiting", POLL_MS=NEVER)
    await change_mode(database_url, "when_waiting")
    finds: list[int] = []  # how much each look found that was made after the word was there
    committed = asyncio.Event()

    async with (
        await AsyncConnection.connect(database_url) as inserting,
        listening(database_url) as heard,
    ):
        await inserting.execute(INSERT, ["late"])

        async def commit_after_the_second_look(found: list[Any]) -> None:
            if "worker" in await topics(db):
                finds.append(len(found))
                if len(finds) == 1:
                    await inserting.commit()
                    committed.set()

        after_each_look(monkeypatch, commit_after_the_second_look)
        async with running_worker(tasks.app, app_locator=LOCATOR):
            await committed.wait()
            await rows.until("late", "COMPLETED")
        assert finds[0] == 0 and sum(finds) == 1
        assert await heard() == []


async def test_d60_a_bell_for_a_row_that_is_locked_is_not_the_last_word(
    doorbell: Configured, database_url: str, db: AsyncConnection, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever locks the row lets go after the worker has looked past it; only the pauses after that can find it."""
    tasks = doorbell(NOTIFY="always", POLL_MS=NEVER)
    async with await AsyncConnection.connect(database_url) as locking:
        await db.execute(INSERT, ["locked"])
        await locking.execute("SELECT FROM horsies_tasks WHERE id = 'locked' FOR UPDATE")
        async with running_worker(tasks.app, app_locator=LOCATOR) as worker:
            await sleeps_for_long(worker)

            async def let_go(found: list[Any]) -> None:
                await locking.rollback()

            after_each_look(monkeypatch, let_go)
            await db.execute("SELECT horsies_ring('left', 'locked', NULL)")
            await rows.until("locked", "COMPLETED")


async def test_d60_an_insert_that_cannot_see_the_word_costs_a_poll_and_nothing_else(
    doorbell: Configured, database_url: str, db: AsyncConnection, rows: Rows
) -> None:
    """A REPEATABLE READ transaction that is older than the word."""
    tasks = doorbell(NOTIFY="when_waiting")
    async with await AsyncConnection.connect(database_url) as inserting, listening(database_url) as heard:
        await inserting.set_isolation_level(IsolationLevel.REPEATABLE_READ)
        await inserting.execute("SELECT FROM horsies_tasks")
        async with running_worker(tasks.app, app_locator=LOCATOR) as worker:
            await eventually(lambda: has_left_word(db, worker))
            await inserting.execute(INSERT, ["blind"])
            await inserting.commit()
            await rows.until("blind", "COMPLETED")
        assert await heard() == []


async def test_d60_a_word_that_has_lapsed_does_not_ring_and_is_left_anew(
    doorbell: Configured, database_url: str, db: AsyncConnection, rows: Rows
) -> None:
    """As after a jump of the clock."""
    tasks = doorbell(NOTIFY="when_waiting")
    async with listening(database_url) as heard, running_worker(tasks.app, app_locator=LOCATOR) as worker:
        await eventually(lambda: has_left_word(db, worker))
        async with db.transaction():
            await db.execute("UPDATE horsies_waiting SET until = clock_timestamp() - interval '1 s'")
            await db.execute(INSERT, ["silent"])
        await rows.until("silent", "COMPLETED")
        assert await heard() == []
        await eventually(lambda: has_left_word(db, worker))


async def test_d60_a_worker_that_was_killed_leaves_a_word_that_harms_nobody(
    doorbell: Configured, database_url: str, db: AsyncConnection, rows: Rows
) -> None:
    tasks = doorbell(NOTIFY="when_waiting", POLL_MS=NEVER)
    with WorkerProcess(database_url, locator=LOCATOR) as doomed:
        await eventually(lambda: topics(db), timeout=30)
        [dead] = {holder for _, holder in await words(db)}
        doomed.process.kill()
        await asyncio.to_thread(doomed.process.wait)
    async with listening(database_url) as heard:
        assert await words(db) == {("worker", dead)}
        handle = await send(tasks.note, "nobody is there")
        assert await heard() == []

        async with running_worker(tasks.app, app_locator=LOCATOR) as worker:
            await rows.until(handle.task_id, "COMPLETED")
            await eventually(lambda: has_left_word(db, worker))
            await db.execute(
                "UPDATE horsies_waiting SET until = clock_timestamp() - interval '2 min' WHERE holder = %s", [dead]
            )

            async def is_forgotten() -> bool:
                return await rows.all("SELECT FROM horsies_waiting WHERE holder = %s", dead) == []

            await eventually(is_forgotten, what="the living tidy up after the dead")
            assert await has_left_word(db, worker)


async def test_d60_workers_of_different_queues_are_rung_each_for_its_own(
    doorbell: Configured, database_url: str, db: AsyncConnection, rows: Rows
) -> None:
    tasks = doorbell(NOTIFY="when_waiting", POLL_MS=NEVER)
    left = {"app_locator": LOCATOR, "queues": ("left",), "processes": 1}
    right = {**left, "queues": ("right",)}
    async with listening(database_url) as heard, running_worker(tasks.app, **left) as first:
        async with running_worker(tasks.app, **right) as second:
            both = {("worker", first.worker_id), ("worker", second.worker_id)}
            await eventually(lambda: _are(words(db), both))
            async with listening(database_url, wake_of(first), wake_of(second)) as called:
                for task, worker in ((tasks.note, first), (tasks.note_right, second)):
                    sent = await send(task, "x")
                    await rows.until(sent.task_id, "COMPLETED")
                    assert await called() == [(wake_of(worker), sent.task_id)]
        assert await words(db) == {("worker", first.worker_id)}
        async with listening(database_url, wake_of(first)) as called:
            await send(tasks.note_right, "nobody serves it")
            assert await called() == []
        assert await heard() == []


async def _are(found: Any, wanted: Any) -> bool:
    return bool(await found == wanted)


async def test_d60_a_worker_follows_the_recorded_mode_when_it_changes(
    doorbell: Configured, database_url: str, db: AsyncConnection, rows: Rows
) -> None:
    """Not its own setting, and not only the one it found when it started."""
    tasks = doorbell(NOTIFY="always")
    async with listening(database_url) as heard, running_worker(tasks.app, app_locator=LOCATOR) as worker:

        async def bells_of_a_task() -> list[tuple[str, str]]:
            handle = await send(tasks.note, "x")
            await rows.until(handle.task_id, "COMPLETED")
            return [(channel, "") for channel, _ in await heard()]

        assert await bells_of_a_task() == [(name, "") for name, _ in [*new(""), *done("")]]
        await change_mode(database_url, "when_waiting")
        assert await bells_of_a_task() == []
        await change_mode(database_url, "off")
        assert await bells_of_a_task() == []
        await db.execute("DELETE FROM horsies_waiting")
        await change_mode(database_url, "always")
        assert await bells_of_a_task() == [(name, "") for name, _ in [*new(""), *done("")]]
        await eventually(lambda: has_left_word(db, worker), what="it leaves word again")


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[str]:
    """A server of this test's own, which may crash."""
    home = tmp_path / "pg"
    yield await asyncio.to_thread(embedded.ensure_running, home)
    await asyncio.to_thread(embedded.stop, home)


async def crash(url: str) -> None:
    """One backend is killed, so all are; what is unlogged is gone."""
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        os.kill(conn.info.backend_pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            await conn.execute("SELECT pg_sleep(60)")


async def test_d60_words_lost_in_a_crash_of_the_server_are_left_again(
    own_server: str, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiter, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr(waiter, "PAUSES", ())
    rows = Rows(own_server)
    async with configurable(DOORBELL, own_server, monkeypatch) as doorbell:
        tasks = doorbell(NOTIFY="when_waiting", POLL_MS=NEVER)
        async with running_worker(tasks.app, app_locator=LOCATOR, processes=2):
            handle = await send(tasks.hold, "held")
            waiting = asyncio.create_task(handle.get_async())
            wanted = {"worker", f"task:{handle.task_id}"}

            async def words_are_there() -> bool:
                return {row["topic"] for row in await rows.all("SELECT topic FROM horsies_waiting")} == wanted

            await eventually(words_are_there)
            await rows.all("INSERT INTO horsies_waiting VALUES ('queue:x', 'ghost', '9999-01-01') RETURNING topic")
            await crash(own_server)

            async def are_back() -> bool:
                try:
                    return await words_are_there()
                except psycopg.Error:
                    return False

            await eventually(are_back, timeout=30, what="all but the ghost have left word again")
            note = await send(tasks.note, "rung for")
            await rows.until(note.task_id, "COMPLETED")
            (traces / "held.go").touch()
            assert (await asyncio.wait_for(waiting, 15)).unwrap() == 1
