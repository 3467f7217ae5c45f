"""The doorbell: its three modes, and what is left when nobody rings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from horsies.core.schema.install import install
from tests.doorbell_support import wake_of
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e


async def set_mode(url: str, mode: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        await install(conn, notify=mode, change_notify=True)


async def drop_the_bell(url: str) -> None:
    """Every notification of every mode is lost from now on."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        await conn.execute("ALTER TABLE horsies_tasks DISABLE TRIGGER USER")


async def test_w62_without_any_notification_polling_finds_the_work(basic: Any, database_url: str) -> None:
    async with running_worker(basic.app):
        await (await basic.noop.send_async()).unwrap().get_async(timeout_ms=30_000)
        await drop_the_bell(database_url)
        handle = (await basic.add.send_async(1, 2)).unwrap()
        assert (await handle.get_async(timeout_ms=30_000)).unwrap() == 3


async def test_w62_a_delayed_task_is_found_when_it_is_due(basic: Any, rows: Rows) -> None:
    async with running_worker(basic.app):
        handle = (await basic.add.schedule_async(1, 1, 2)).unwrap()
        assert (await handle.get_async(timeout_ms=30_000)).unwrap() == 3
    row = await rows.task(handle.task_id)
    assert row["enqueued_at"] <= row["claimed_at"] and (row["enqueued_at"] - row["sent_at"]).total_seconds() >= 0.9


@pytest.fixture
def sleeper(basic: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The app with `when_waiting`, as a worker that starts would install it."""
    broker = basic.app.config.broker.model_copy(update={"notify": "when_waiting"})
    basic.app.config = basic.app.config.model_copy(update={"broker": broker})
    return basic


@pytest.mark.slow("the same story in another mode of notifications")
async def test_d60_with_when_waiting_a_sleeping_worker_is_rung_for(
    sleeper: Any, database_url: str, rows: Rows, traces: Path
) -> None:
    async with running_worker(sleeper.app) as worker:
        (mode,) = await eventually(
            lambda: rows.all("SELECT value FROM horsies_meta WHERE key = 'notify' AND value = 'when_waiting'")
        )
        assert mode["value"] == "when_waiting"
        words = await eventually(lambda: rows.all("SELECT * FROM horsies_waiting"), what="the worker left word")
        assert [(w["topic"], w["holder"], w["queues"]) for w in words] == [("worker", worker.worker_id, ["default"])]
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as ear:
            await ear.execute(f'LISTEN "{wake_of(worker)}"'.encode())
            handle = (await sleeper.add.send_async(1, 2)).unwrap()
            heard = [n.payload async for n in ear.notifies(timeout=10, stop_after=1)]
        assert heard == [handle.task_id]
        assert (await handle.get_async(timeout_ms=30_000)).unwrap() == 3
    assert await rows.all("SELECT * FROM horsies_waiting WHERE holder = %s", worker.worker_id) == []


@pytest.mark.slow("the same story in another mode of notifications")
async def test_d60_with_off_everything_still_runs(basic: Any, database_url: str) -> None:
    await set_mode(database_url, "off")
    broker = basic.app.config.broker.model_copy(update={"notify": "off"})
    basic.app.config = basic.app.config.model_copy(update={"broker": broker})
    async with running_worker(basic.app):
        handle = (await basic.add.send_async(1, 2)).unwrap()
        assert (await handle.get_async(timeout_ms=30_000)).unwrap() == 3
