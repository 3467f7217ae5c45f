"""What a worker does beside running tasks: who holds which connection, what wakes it, what it writes last."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
import pytest

from horsies import TaskHandle
from tests.doorbell_support import wake_of
from tests.support import eventually
from tests.worker_support import ROOT, Rows, WorkerProcess, running_worker

pytestmark = pytest.mark.e2e

SEPARATE = str(ROOT / "tests" / "apps" / "separate.py")


async def send(task: Any, *args: Any, **kwargs: Any) -> TaskHandle[Any]:
    handle: TaskHandle[Any] = (await task.send_async(*args, **kwargs)).unwrap()
    return handle


async def result_of(handle: TaskHandle[Any]) -> Any:
    return await handle.get_async(timeout_ms=30_000)


async def begun(traces: Path, name: str) -> int:
    path = traces / name
    await eventually(lambda: path.exists() and path.read_text(), what=f"{name} has begun")
    return int(path.read_text().split()[0])


async def execute(url: str, *statements: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        for statement in statements:
            await db.execute(statement.encode())


# Who does what (W-01)


async def test_w01_the_parent_imports_no_tasks_and_a_child_has_one_socket(
    database_url: str, rows: Rows, traces: Path
) -> None:
    await rows.all("INSERT INTO horsies_tasks (id, task_name) VALUES ('t', 'sockets') RETURNING id")
    with WorkerProcess(database_url, "--processes", "2", locator=SEPARATE) as worker:
        row = await rows.until("t", "COMPLETED", "FAILED")
        code, output = await asyncio.to_thread(worker.stop)
    assert (code, row["status"]) == (0, "COMPLETED"), output + str(row["result"])
    importing = [int(pid) for pid in (traces / "imports").read_text().split()]
    assert worker.process.pid not in importing and row["worker_pid"] in importing
    assert row["result"] == '{"ok":1}', "a child speaks only to its parent, not to the database"


async def test_w40_a_task_can_send_another_with_a_connection_of_its_childs_own(basic: Any) -> None:
    async with running_worker(basic.app):
        sent = (await result_of(await send(basic.relay, 1, 2))).unwrap()
        assert (await basic.app.get_broker().get_result_async(sent, 30_000)).unwrap() == 3


# What wakes it (W-05, T-80)


async def test_w05_its_channel_wakes_it_before_the_next_poll(basic: Any, database_url: str, rows: Rows) -> None:
    resilience = basic.app.config.resilience.model_copy(update={"notify_poll_interval_ms": 300_000})
    basic.app.config = basic.app.config.model_copy(update={"resilience": resilience})
    await execute(database_url, "ALTER TABLE horsies_tasks DISABLE TRIGGER USER")
    async with running_worker(basic.app) as worker:
        for word in ("", "more"):
            await eventually(lambda: hasattr(worker, "_claimer") and worker._claimer._look_at > monotonic() + 60)
            task_id = f"task {word}"
            await rows.all("INSERT INTO horsies_tasks (id, task_name) VALUES (%s, 'noop') RETURNING id", task_id)
            await execute(database_url, f"NOTIFY \"{wake_of(worker)}\", '{word}'")
            await rows.until(task_id, "COMPLETED")


async def test_t80_a_retry_that_falls_due_is_rung_for(basic: Any, database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as ear:
        await ear.execute("LISTEN task_queue_default")
        async with running_worker(basic.app):
            handle = await send(basic.flaky, "rung", 1)
            rings = [n.payload async for n in ear.notifies(timeout=20, stop_after=2)]
            assert (await result_of(handle)).unwrap() == 2
    assert rings == [handle.task_id] * 2, "once for the insert, once for the retry"


# What it is told, and what it is not


async def test_d61_a_worker_answers_a_ping(basic: Any) -> None:
    async with running_worker(basic.app) as worker:
        await result_of(await send(basic.noop))
        pongs = (await basic.app.ping_workers_async(timeout_seconds=2)).unwrap()
    assert [(pong.worker_id, pong.hostname, pong.pid) for pong in pongs] == [
        (worker.worker_id, worker.me.hostname, worker.me.pid)
    ]


async def test_t58_a_running_task_is_not_stopped_by_its_deadline(basic: Any, rows: Rows, traces: Path) -> None:
    async with running_worker(basic.app):
        handle = await send(basic.nap, 60, "late")
        await begun(traces, "late")
        await rows.all("UPDATE horsies_tasks SET good_until = now() RETURNING id")
        (traces / "late.go").touch()
        assert (await result_of(handle)).is_ok()
    assert [a["outcome"] for a in await rows.attempts(handle.task_id)] == ["COMPLETED"]


async def test_t30_a_limit_that_is_over_before_the_code_began_hands_the_task_back(
    basic: Any, rows: Rows, traces: Path
) -> None:
    """The child is frozen when the task reaches it, so it never says that it started."""
    async with running_worker(basic.app, run_ahead_ms=0):
        frozen = (await result_of(await send(basic.pid))).unwrap()
        os.kill(frozen, signal.SIGSTOP)
        await rows.all(
            "INSERT INTO horsies_tasks (id, task_name, args, task_options)"
            " VALUES ('t', 'pid', '[\"thawed\"]', '{\"timeout_ms\": 1000}') RETURNING id"
        )
        row = await rows.until("t", "COMPLETED", "FAILED", timeout=40)
    assert (row["status"], row["retry_count"]) == ("COMPLETED", 0) and row["worker_pid"] != frozen
    assert [a["outcome"] for a in await rows.attempts("t")] == ["COMPLETED"]
    assert len((traces / "thawed").read_text().splitlines()) == 1


async def test_w72_heartbeats_and_snapshots_that_fail_stop_no_task(
    basic: Any, rows: Rows, database_url: str, traces: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tables = ("horsies_heartbeats", "horsies_worker_states")
    async with running_worker(basic.app):
        await execute(database_url, *(f"ALTER TABLE {table} RENAME TO {table}_gone" for table in tables))
        handle = await send(basic.nap, 60, "unseen")
        await eventually(lambda: "heartbeats: database error" in caplog.text, what="the failed heartbeat is logged")
        await eventually(lambda: "snapshots: database error" in caplog.text, what="the failed snapshot is logged")
        await execute(database_url, *(f"ALTER TABLE {table}_gone RENAME TO {table}" for table in tables))
        (traces / "unseen.go").touch()
        assert (await result_of(handle)).is_ok()
        (last,) = await rows.all("SELECT COALESCE(max(id), 0) AS id FROM horsies_worker_states")
        await eventually(lambda: rows.all("SELECT 1 FROM horsies_worker_states WHERE id > %s", last["id"]))
    assert [a["outcome"] for a in await rows.attempts(handle.task_id)] == ["COMPLETED"]


async def test_w53_the_end_of_its_row_is_the_last_thing_a_worker_writes(
    basic: Any, rows: Rows, database_url: str, traces: Path
) -> None:
    await execute(
        database_url,
        "CREATE TABLE audit (n serial, what text)",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO audit (what) VALUES (TG_OP || ' ' || TG_TABLE_NAME); RETURN NULL; END $$",
        *(
            f"CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON horsies_{table}"
            " FOR EACH ROW EXECUTE FUNCTION note()"
            for table in ("tasks", "task_attempts", "heartbeats", "worker_states", "workers", "waiting")
        ),
    )
    async with running_worker(basic.app):
        handle = await send(basic.nap, 1.5, "last")
        await begun(traces, "last")
    assert await rows.status(handle.task_id) == "COMPLETED"
    said = [row["what"] for row in await rows.all("SELECT what FROM audit ORDER BY n")]
    assert said.count("DELETE horsies_workers") == 1 and said[-1] == "DELETE horsies_workers"
    assert said.index("INSERT horsies_workers") < said.index("UPDATE horsies_tasks"), (
        "registered before the first claim"
    )
    assert said.count("INSERT horsies_task_attempts") == 1
