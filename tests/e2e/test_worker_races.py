"""Awkward moments: a stop in the middle of a claim, a claim lost before its start, a task that comes back while its old
code runs, a row that somebody holds. Triggers in the database make each moment happen every time.
"""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import psycopg
import pytest

from horsies import TaskHandle
from horsies.core.models.recovery import WorkerResilienceConfig
from horsies.core.worker.config import WorkerConfig
from horsies.core.worker.in_hand import HeldTask
from horsies.core.worker.service import Worker
from tests.e2e.conftest import load
from tests.support import eventually
from tests.worker_support import BASIC, ONE_AT_A_TIME, ROOT, Rows, running_worker

pytestmark = pytest.mark.e2e


async def send(task: Any, *args: Any, **kwargs: Any) -> TaskHandle[Any]:
    handle: TaskHandle[Any] = (await task.send_async(*args, **kwargs)).unwrap()
    return handle


async def insert(rows: Rows, *tasks: tuple[str, str, str, int]) -> None:
    """Tasks (id, name, kwargs, priority) that all become visible at the same moment."""
    values = ", ".join(["(%s, %s, %s, %s)"] * len(tasks))
    await rows.all(
        f"INSERT INTO horsies_tasks (id, task_name, kwargs, priority) VALUES {values} RETURNING id",  # noqa: S608
        *(value for task in tasks for value in task),
    )


async def begun(traces: Path, name: str, times: int = 1) -> None:
    await eventually(
        lambda: (traces / name).exists() and (traces / name).read_text().count("begin") >= times,
        what=f"{name} has begun {times} times",
    )


async def on_update(database_url: str, when: str, body: str, table: str = "horsies_tasks") -> None:
    """From now on `body` (PL/pgSQL) happens before each update that fits."""
    event = "UPDATE" if table == "horsies_tasks" else "INSERT"
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db:
        function = f"CREATE FUNCTION moment() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$"
        trigger = f"CREATE TRIGGER moment BEFORE {event} ON {table} FOR EACH ROW WHEN ({when})"
        await db.execute(function.encode())
        await db.execute(f"{trigger} EXECUTE FUNCTION moment()".encode())


def patient(module: Any) -> None:
    """A worker of this app hears of work by the bell, or by what it does itself; polling would come too late."""
    slow = WorkerResilienceConfig(db_retry_initial_ms=100, db_retry_max_ms=500, notify_poll_interval_ms=120_000)
    module.app.config = module.app.config.model_copy(update={"resilience": slow})


# Stopping


@pytest.mark.parametrize("busy", [True, False])
async def test_w51_a_claim_under_way_when_the_stop_comes_is_handed_back(
    basic: Any, rows: Rows, database_url: str, traces: Path, busy: bool
) -> None:
    await on_update(
        database_url, "NEW.id = 't' AND OLD.status = 'PENDING' AND NEW.claimed", "PERFORM pg_sleep(1.5); RETURN NEW;"
    )
    async with running_worker(basic.app, processes=2):
        if busy:
            await send(basic.nap, 2, "busy")
            await begun(traces, "busy")
        await insert(rows, ("t", "noop", "{}", 50))
        await eventually(lambda: rows.all("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))
    row = await rows.task("t")
    assert (row["status"], row["claimed"], row["claimed_by_worker_id"]) == ("PENDING", False, None)


@pytest.mark.slow("holds tasks for seconds to show an order")
async def test_w51_a_task_seen_ahead_when_the_stop_comes_is_not_claimed(
    basic: Any, rows: Rows, database_url: str, traces: Path
) -> None:
    """A worker that has found nothing for a while looks ahead before it claims, and the stop comes in between."""
    worker = Worker(basic.app, WorkerConfig(app_locator=BASIC, **{**ONE_AT_A_TIME, "processes": 2}))
    async with await psycopg.AsyncConnection.connect(database_url) as holder, asyncio.timeout(60):
        running = asyncio.create_task(worker.run())
        await send(basic.nap, 6, "busy")
        await begun(traces, "busy")
        await eventually(lambda: worker._claimer._may_sleep_on())
        await holder.execute("LOCK horsies_tasks IN ACCESS EXCLUSIVE MODE")
        await holder.execute("ALTER TABLE horsies_tasks DISABLE TRIGGER USER")  # no bell
        await holder.execute("INSERT INTO horsies_tasks (id, task_name) VALUES ('t', 'noop')")
        await eventually(lambda: rows.all(LOOKS_AHEAD), what="the look ahead waits")
        worker.request_stop()
        await eventually(lambda: worker._claimer.is_stopped)
        await holder.commit()
        assert await running == 0
    row = await rows.task("t")
    assert (row["status"], row["claimed"], row["claim_seq"]) == ("PENDING", False, 0)


LOOKS_AHEAD = """
    SELECT 1 FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%%AS due_s%%'
"""


async def test_w60_a_worker_that_gives_up_while_it_stops_ends(basic: Any, database_url: str, traces: Path) -> None:
    few = WorkerResilienceConfig(db_retry_initial_ms=100, db_retry_max_ms=500, db_retry_max_attempts=3)
    basic.app.config = basic.app.config.model_copy(update={"resilience": few})
    full = "RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100';"
    await on_update(database_url, "TRUE", full, table="horsies_task_attempts")
    worker = Worker(basic.app, WorkerConfig(app_locator=BASIC, **ONE_AT_A_TIME))
    running = asyncio.create_task(worker.run())
    await send(basic.nap, 1, "last")
    await begun(traces, "last")
    worker.request_stop()
    async with asyncio.timeout(40):
        assert await running == 1


async def test_w53_a_session_lost_unnoticed_does_not_keep_the_worker_from_leaving(basic: Any, rows: Rows) -> None:
    async with running_worker(basic.app):
        await eventually(lambda: rows.all("SELECT 1 FROM horsies_workers"))
        await rows.all(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'horsies heart' AND datname = current_database()"
        )
    assert await rows.all("SELECT * FROM horsies_workers") == []


async def test_w50_a_worker_that_is_still_starting_stops(basic: Any, rows: Rows, tmp_path: Path, traces: Path) -> None:
    module = tmp_path / "endless.py"
    module.write_text("import os, pathlib, time\n(pathlib.Path(os.environ['TRACES']) / 'i').touch()\ntime.sleep(60)\n")
    worker = Worker(basic.app, WorkerConfig(app_locator=BASIC, imports=(str(module),), **ONE_AT_A_TIME))
    running = asyncio.create_task(worker.run())
    await eventually((traces / "i").exists)
    worker.request_stop()
    async with asyncio.timeout(30):
        assert await running == 0


# Room


async def test_l25_a_claim_lost_before_its_start_leaves_its_room_to_the_next(
    basic: Any, rows: Rows, database_url: str
) -> None:
    patient(basic)
    await on_update(database_url, "NEW.id = 'lost' AND NEW.status = 'RUNNING'", "RETURN NULL;")
    await insert(rows, ("lost", "noop", "{}", 1), ("next", "noop", "{}", 2))
    async with running_worker(basic.app, concurrency=2):  # so that starts are statements of their own (W-21b)
        await rows.until("next", "COMPLETED")
    assert await rows.attempts("lost") == []


async def test_l27_an_unconfirmed_start_does_not_hold_up_those_behind_it(
    database_url: str, rows: Rows, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("PREFETCH", "1")
    limits: Any = load(ROOT / "tests" / "apps" / "limits.py")
    # Its start fails, and once it is back in the queue it is not due for a long time.
    body = (
        "IF NEW.status = 'RUNNING' THEN RAISE EXCEPTION 'gone' USING ERRCODE = '08006'; END IF;"
        " NEW.enqueued_at = now() + interval '1 day'; RETURN NEW;"
    )
    await on_update(database_url, "NEW.id = 'unsure' AND NEW.status IN ('RUNNING', 'PENDING')", body)
    await rows.all(
        # One that was tried before is started by a statement of its own (W-21b).
        "INSERT INTO horsies_tasks (id, task_name, queue_name, kwargs, priority, retry_count, max_retries) VALUES"
        " ('unsure', 'free', 'free', '{\"seconds\": 0}', 1, 1, 3),"
        " ('behind', 'free', 'free', '{\"seconds\": 0}', 2, 0, 3) RETURNING id"
    )
    async with running_worker(limits.app, app_locator=f"{ROOT / 'tests' / 'apps' / 'limits.py'}:app"):
        await rows.until("behind", "COMPLETED")
    assert await rows.status("unsure") == "PENDING" and await rows.attempts("unsure") == []


@pytest.mark.slow("holds tasks for seconds to show an order")
async def test_w30a_sync_tasks_follow_one_another_at_once_whatever_the_concurrency(basic: Any, rows: Rows) -> None:
    patient(basic)
    naps = [(f"n{n}", "nap", '{"seconds": 2.5}', 50) for n in range(3)]
    await insert(rows, *naps)
    async with running_worker(basic.app, concurrency=4):
        for task_id, *_ in naps:
            await rows.until(task_id, "COMPLETED")


@pytest.mark.slow("holds tasks for seconds to show an order")
async def test_w30a_no_async_task_is_claimed_for_a_child_that_a_sync_one_takes(basic: Any, rows: Rows) -> None:
    await insert(rows, ("sync", "nap", '{"seconds": 2}', 1), ("async", "anap", '{"seconds": 0}', 50))
    # At the end of its nap the child is free, and its end is written a moment later.
    query = "SELECT id, status, clock_timestamp() < started_at + interval '1.5 s' AS naps FROM horsies_tasks"
    seen: set[str] = set()
    async with running_worker(basic.app, concurrency=3):

        async def sync_done() -> bool:
            found = {row["id"]: row for row in await rows.all(query)}
            if found["sync"]["naps"]:
                seen.add(found["async"]["status"])
            return bool(found["sync"]["status"] == "COMPLETED")

        await eventually(sync_done)
        row = await rows.until("async", "COMPLETED")
    assert seen == {"PENDING"} and row["claim_seq"] == 1


@pytest.mark.slow("holds tasks for seconds to show an order")
async def test_w25a_a_sync_task_behind_a_long_async_one_is_taken_back(basic: Any, rows: Rows, traces: Path) -> None:
    async with running_worker(basic.app, concurrency=2, run_ahead_ms=1_000):
        for handle in [await send(basic.anap, 0) for _ in range(100)]:
            await handle.get_async(timeout_ms=30_000)
        await insert(
            rows,
            ("long", "anap", '{"seconds": 8, "name": "long"}', 1),
            *((f"s{n}", "noop", "{}", 50) for n in range(5)),
        )
        await begun(traces, "long")

        async def all_back() -> bool:
            states = await rows.all("SELECT DISTINCT status FROM horsies_tasks WHERE id LIKE 's%%'")
            return [row["status"] for row in states] == ["PENDING"]

        await eventually(all_back, what="the sync tasks wait in the queue")
        assert await rows.status("long") == "RUNNING"
        for n in range(5):
            await rows.until(f"s{n}", "COMPLETED")


# One task, two holds


async def test_r11_code_of_a_task_that_its_own_worker_has_claimed_again_is_stopped(
    basic: Any, rows: Rows, traces: Path
) -> None:
    async with running_worker(basic.app, processes=2):
        handle = await send(basic.nap, 4, "twice")
        await begun(traces, "twice")
        await rows.all(  # somebody recovers it
            "WITH back AS (UPDATE horsies_tasks SET status = 'PENDING', claimed = FALSE, claimed_by_worker_id = NULL"
            " WHERE id = %s RETURNING id) SELECT horsies_ring('default', id, NULL) FROM back",
            handle.task_id,
        )
        await begun(traces, "twice", 2)
        assert (await handle.get_async(timeout_ms=30_000)).is_ok()
    assert (traces / "twice").read_text().count("end") == 1
    assert [a["outcome"] for a in await rows.attempts(handle.task_id)] == ["COMPLETED"]


# Nothing is kept, nothing is held up


async def test_t30_the_time_limit_of_a_task_that_has_ended_is_forgotten(basic: Any, rows: Rows) -> None:
    async with running_worker(basic.app):
        await rows.all(
            "INSERT INTO horsies_tasks (id, task_name, kwargs, task_options)"
            " SELECT 't' || n, 'noop', '{}', '{\"timeout_ms\": 600000}' FROM generate_series(1, 20) n RETURNING id"
        )

        async def none_kept() -> bool:
            gc.collect()
            left = await rows.all("SELECT 1 FROM horsies_tasks WHERE status <> 'COMPLETED'")
            return not left and not any(isinstance(thing, HeldTask) for thing in gc.get_objects())

        await eventually(none_kept, 60, what="no task is in memory")


async def test_l34_a_task_whose_end_is_refused_for_good_does_not_hold_up_the_others(
    basic: Any, rows: Rows, database_url: str
) -> None:
    await on_update(database_url, "NEW.task_id = 'bad'", "RAISE EXCEPTION 'no';", table="horsies_task_attempts")
    await insert(rows, ("bad", "noop", "{}", 1), *((f"t{n}", "noop", "{}", 2) for n in range(5)))
    async with running_worker(basic.app, processes=2):
        for n in range(5):
            await rows.until(f"t{n}", "COMPLETED")
        bad = await rows.until("bad", "FAILED")
    assert bad["error_code"] == "ROW_SET_ASIDE" and bad["failed_reason"].startswith("the database refuses its end: no")
    assert await rows.attempts("bad") == []  # that row is what the database refuses (L-35)


async def test_w72_a_row_that_somebody_keeps_locked_stops_neither_heartbeats_nor_other_results(
    basic: Any, rows: Rows, database_url: str, traces: Path
) -> None:
    count = "SELECT count(*) AS n FROM horsies_heartbeats WHERE task_id = %s"
    async with running_worker(basic.app, processes=2):
        locked, other = await send(basic.nap, 1, "locked"), await send(basic.nap, 60, "other")
        await begun(traces, "locked")
        await begun(traces, "other")
        async with await psycopg.AsyncConnection.connect(database_url) as db:
            await db.execute("SELECT 1 FROM horsies_tasks WHERE id = %s FOR UPDATE", (locked.task_id,))
            await eventually(lambda: "end" in (traces / "locked").read_text())
            (before,) = await rows.all(count, other.task_id)

            async def three_more() -> bool:
                (now,) = await rows.all(count, other.task_id)
                return bool(now["n"] >= before["n"] + 4)

            await eventually(three_more, what="the other task's heartbeats go on")
            (traces / "other.go").touch()
            await rows.until(other.task_id, "COMPLETED")
            await db.rollback()
        await rows.until(locked.task_id, "COMPLETED")
    assert len(await rows.attempts(locked.task_id)) == 1
