"""A database that goes away at any moment: nothing is lost, nothing runs twice, and the worker comes back by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from horsies import TaskHandle
from horsies.core import embedded, events
from horsies.core.worker.config import WorkerConfig
from horsies.core.worker.service import Worker
from tests.e2e.conftest import load
from tests.support import eventually
from tests.worker_support import ONE_AT_A_TIME, ROOT, Rows, running_worker

pytestmark = pytest.mark.e2e


async def send(task: Any, *args: Any, **kwargs: Any) -> TaskHandle[Any]:
    handle: TaskHandle[Any] = (await task.send_async(*args, **kwargs)).unwrap()
    return handle


async def begun(traces: Path, name: str) -> None:
    await eventually(lambda: (traces / name).exists() and (traces / name).read_text(), what=f"{name} has begun")


async def cut_all(rows: Rows) -> None:
    """Every session of this database but ours ends at once."""
    await rows.all(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )


async def test_w61_sessions_cut_again_and_again_lose_and_repeat_nothing(basic: Any, rows: Rows, traces: Path) -> None:
    await rows.all(
        "INSERT INTO horsies_tasks (id, task_name, kwargs) SELECT 't' || n, 'pid', '{\"name\": \"cut\"}'"
        " FROM generate_series(1, 1500) n RETURNING id"
    )

    async def left() -> int:
        (row,) = await rows.all("SELECT count(*) AS n FROM horsies_tasks WHERE status <> 'COMPLETED'")
        return int(row["n"])

    async with running_worker(basic.app, processes=2):
        for share in (1200, 800, 400):
            await eventually(lambda share=share: _at_most(left, share), 60)  # type: ignore[misc]
            await cut_all(rows)
        await eventually(lambda: _at_most(left, 0), 90, what="all are done")
    assert len((traces / "cut").read_text().splitlines()) == 1500
    (row,) = await rows.all("SELECT count(*) AS n, count(DISTINCT task_id) AS d FROM horsies_task_attempts")
    assert (row["n"], row["d"]) == (1500, 1500)
    (row,) = await rows.all("SELECT max(claim_seq) AS most, count(*) FILTER (WHERE claimed) AS held FROM horsies_tasks")
    assert row["held"] == 0


async def _at_most(count: Any, most: int) -> bool:
    return await count() <= most


LISTENING = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE application_name = 'horsies worker listener' AND datname = current_database()"
)
LIVENESS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND ((classid::bigint << 32) | objid::bigint) = %s"


async def test_t11_after_a_lost_listen_session_the_worker_hears_again(basic: Any, rows: Rows) -> None:
    async with running_worker(basic.app) as worker:
        await (await send(basic.noop)).get_async(timeout_ms=30_000)
        (before,) = await rows.all(LISTENING)
        await cut_all(rows)

        async def again() -> int | None:
            found = await rows.all(LISTENING)
            return found[0]["pid"] if found and found[0]["pid"] != before["pid"] else None

        listener = await eventually(again, what="it listens again")
        (lock,) = await eventually(lambda: rows.all(LIVENESS, worker.me.liveness_key))
        assert lock["pid"] == listener  # the liveness lock lives in the LISTEN session


@pytest.fixture
async def own_server(tmp_path: Path, traces: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Any, Path]]:
    """A server of this test's own, to be stopped and started; and the app on it."""
    home = tmp_path / "pg"
    url = await asyncio.to_thread(embedded.ensure_running, home)
    monkeypatch.setenv("DATABASE_URL", url)
    module = load(ROOT / "tests" / "apps" / "basic.py")
    (await module.app.get_broker().ensure_schema_initialized()).unwrap()
    yield module, home
    await module.app.get_broker().close_async()
    await asyncio.to_thread(embedded.stop, home)


async def test_w61_results_wait_while_the_server_is_down(own_server: tuple[Any, Path], traces: Path) -> None:
    basic, home = own_server
    url = await asyncio.to_thread(embedded.ensure_running, home)
    async with running_worker(basic.app):
        handle = await send(basic.nap, 60, "down")
        await begun(traces, "down")
        await asyncio.to_thread(embedded.stop, home)
        (traces / "down.go").touch()
        await eventually(lambda: "end" in (traces / "down").read_text(), what="the task ran to its end meanwhile")
        assert await asyncio.to_thread(embedded.ensure_running, home) == url
        rows = Rows(url)
        row = await rows.until(handle.task_id, "COMPLETED", "FAILED", timeout=40)
        assert row["status"] == "COMPLETED"
        assert [a["outcome"] for a in await rows.attempts(handle.task_id)] == ["COMPLETED"]
        assert (await (await send(basic.add, 1, 1)).get_async(timeout_ms=30_000)).unwrap() == 2
    assert (traces / "down").read_text().count("begin") == 1


async def test_w61_a_worker_started_before_its_database_waits_for_it(
    own_server: tuple[Any, Path], caplog: pytest.LogCaptureFixture
) -> None:
    basic, home = own_server
    handle = await send(basic.add, 2, 3)
    await asyncio.to_thread(embedded.stop, home)
    async with running_worker(basic.app):
        await eventually(lambda: caplog.text.count("schema: database error") >= 2, what="it has failed again")
        await asyncio.to_thread(embedded.ensure_running, home)
        assert (await handle.get_async(timeout_ms=60_000)).unwrap() == 5


async def test_w61_children_lost_while_it_waits_for_its_database_are_replaced(
    own_server: tuple[Any, Path], caplog: pytest.LogCaptureFixture
) -> None:
    basic, home = own_server
    handle = await send(basic.add, 2, 3)
    await asyncio.to_thread(embedded.stop, home)
    ready = asyncio.Event()
    unsubscribe = events.subscribe(lambda name, _: ready.set() if name == "child.ready" else None)
    async with running_worker(basic.app):
        await asyncio.wait_for(ready.wait(), 60)
        unsubscribe()
        for process in psutil.Process().children(recursive=True):
            if process.name().startswith("horsies-child"):
                process.kill()
        await eventually(lambda: "was killed by SIGKILL" in caplog.text)
        await asyncio.to_thread(embedded.ensure_running, home)
        assert (await handle.get_async(timeout_ms=60_000)).unwrap() == 5


async def test_w50_a_worker_that_is_stopped_while_it_waits_for_its_database_begins_nothing(
    traces: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://horsies:secret-word@127.0.0.1:9/none")
    module: Any = load(ROOT / "tests" / "apps" / "basic.py")
    worker = Worker(
        module.app, WorkerConfig(app_locator=f"{ROOT / 'tests' / 'apps' / 'basic.py'}:app", **ONE_AT_A_TIME)
    )
    running = asyncio.create_task(worker.run())
    await eventually(lambda: "schema: database error" in caplog.text)
    worker.request_stop()
    assert await asyncio.wait_for(running, 30) == 0
    assert not [line for line in caplog.messages if "database error" in line and not line.startswith("schema")]
    assert "reaper" not in caplog.text and "secret-word" not in caplog.text


async def test_w60_after_its_last_attempt_the_worker_gives_up(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://horsies:secret-word@127.0.0.1:9/none")
    module: Any = load(ROOT / "tests" / "apps" / "impatient.py")
    worker = Worker(
        module.app, WorkerConfig(app_locator=f"{ROOT / 'tests' / 'apps' / 'impatient.py'}:app", **ONE_AT_A_TIME)
    )
    assert await worker.run() == 1


async def test_l34_a_full_disk_delays_results_and_loses_none(basic: Any, rows: Rows, database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db:
        await db.execute(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
        )
        await db.execute(
            "CREATE TRIGGER full_disk BEFORE INSERT ON horsies_task_attempts FOR EACH ROW EXECUTE FUNCTION full_disk()"
        )
        async with running_worker(basic.app):
            handle = await send(basic.add, 1, 1)
            marked = await eventually(
                lambda: rows.all("SELECT * FROM horsies_tasks WHERE finalizing_at IS NOT NULL"), what="L-30: marked"
            )
            assert marked[0]["status"] == "RUNNING"
            await db.execute("DROP TRIGGER full_disk ON horsies_task_attempts")
            row = await rows.until(handle.task_id, "COMPLETED", timeout=40)
    assert row["error_code"] is None
    assert [a["outcome"] for a in await rows.attempts(handle.task_id)] == ["COMPLETED"]


async def test_l34_a_row_the_database_refuses_fails_alone(basic: Any, rows: Rows, database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db:
        await db.execute("ALTER TABLE horsies_tasks ADD CHECK (result IS DISTINCT FROM '{\"ok\":13}')")
    async with running_worker(basic.app):
        handles = [await send(basic.add, n, 0) for n in range(30)]
        results = [await handle.get_async(timeout_ms=30_000) for handle in handles]
    assert [r.unwrap() for n, r in enumerate(results) if n != 13] == [n for n in range(30) if n != 13]
    assert str(results[13].unwrap_err().error_code) == "WORKER_SERIALIZATION_ERROR"
    row, (attempt,) = await rows.task(handles[13].task_id), await rows.attempts(handles[13].task_id)
    assert (row["status"], row["failed_reason"], attempt["outcome"]) == ("FAILED", None, "FAILED")
