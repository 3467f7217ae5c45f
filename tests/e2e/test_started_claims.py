"""Tasks that become RUNNING with their claim (W-21b), and the moments in which something happens between the statement
and its reply: a child dies, the worker stops, the connection breaks. None of their code has run, so nothing is charged.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import TaskHandle
from horsies.core import events
from tests.e2e.test_worker_races import insert, on_update
from tests.network_support import network
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e

STARTING = "NEW.id = 't' AND OLD.status = 'PENDING' AND NEW.status = 'RUNNING'"


async def send(task: Any, *args: Any) -> TaskHandle[Any]:
    handle: TaskHandle[Any] = (await task.send_async(*args)).unwrap()
    return handle


async def watch(db: AsyncConnection[Any]) -> None:
    """Note every state of every task, in the order of the changes."""
    await db.execute("CREATE TABLE seen (place serial, id text, status text)")
    await db.execute(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO seen (id, status) VALUES (NEW.id, NEW.status); RETURN NULL; END $$"
    )
    await db.execute(
        "CREATE TRIGGER note AFTER INSERT OR UPDATE OF status ON horsies_tasks FOR EACH ROW EXECUTE FUNCTION note()"
    )


async def states(rows: Rows, task_id: str) -> list[str]:
    return [row["status"] for row in await rows.all("SELECT status FROM seen WHERE id = %s ORDER BY place", task_id)]


async def asleep(rows: Rows) -> None:
    await eventually(lambda: rows.all("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))


async def test_w21b_l05a_a_task_for_an_idle_child_starts_with_its_claim(
    basic: Any, rows: Rows, db: AsyncConnection[Any]
) -> None:
    """And the metrics hear of both."""
    told: list[tuple[str, str]] = []

    def listen(name: str, facts: Any) -> None:
        if name in ("tasks.claimed", "tasks.started"):
            told.extend((name, one.id) for one in facts.get("rows", facts.get("batch")))

    await watch(db)
    unsubscribe = events.subscribe(listen)
    async with running_worker(basic.app, processes=1):
        handle = await send(basic.pid, "first")
        pid = (await handle.get_async(timeout_ms=30_000)).unwrap()
    unsubscribe()
    assert await states(rows, handle.task_id) == ["PENDING", "RUNNING", "COMPLETED"]
    row, [attempt] = await rows.task(handle.task_id), await rows.attempts(handle.task_id)
    assert (row["worker_pid"], attempt["worker_pid"]) == (pid, pid)
    assert row["claimed_at"] == row["started_at"] == attempt["started_at"]
    assert told == [("tasks.claimed", handle.task_id), ("tasks.started", handle.task_id)]


async def test_w21b_w24_what_has_no_place_in_a_child_is_only_claimed(
    basic: Any, rows: Rows, db: AsyncConnection[Any]
) -> None:
    await watch(db)
    await insert(rows, *((str(number), "nap", '{"seconds": 0.3}', number) for number in range(1, 5)))
    basic.app.config = basic.app.config.model_copy(update={"prefetch_buffer": 2, "claim_lease_ms": 5_000})
    async with running_worker(basic.app, processes=1):
        for number in range(1, 5):
            await rows.until(str(number), "COMPLETED")
    assert await states(rows, "1") == ["PENDING", "RUNNING", "COMPLETED"]
    assert await states(rows, "2") == ["PENDING", "CLAIMED", "RUNNING", "COMPLETED"]
    assert await states(rows, "3") == ["PENDING", "CLAIMED", "RUNNING", "COMPLETED"]


async def test_w21b_l13a_a_child_that_dies_meanwhile_does_not_count(
    basic: Any, rows: Rows, database_url: str, traces: Path
) -> None:
    await on_update(database_url, f"{STARTING} AND NEW.claim_seq = 1", "PERFORM pg_sleep(1.5); RETURN NEW;")
    async with running_worker(basic.app, processes=1):
        pid = (await (await send(basic.pid, "first")).get_async(timeout_ms=30_000)).unwrap()
        await insert(rows, ("t", "pid", '{"name": "t"}', 50))
        await asleep(rows)
        os.kill(pid, signal.SIGKILL)
        row = await rows.until("t", "COMPLETED", timeout=40)
    assert (row["claim_seq"], row["retry_count"], row["start_failures"]) == (2, 0, 0)
    assert [attempt["outcome"] for attempt in await rows.attempts("t")] == ["COMPLETED"]
    assert row["worker_pid"] != pid and len((traces / "t").read_text().splitlines()) == 1


async def test_w21b_w51_a_worker_that_stops_meanwhile_hands_it_back(
    basic: Any, rows: Rows, database_url: str, traces: Path
) -> None:
    await on_update(database_url, STARTING, "PERFORM pg_sleep(1.5); RETURN NEW;")
    async with running_worker(basic.app, processes=1):
        await insert(rows, ("t", "pid", '{"name": "t"}', 50))
        await asleep(rows)
    row = await rows.task("t")
    assert (row["status"], row["claimed"], row["started_at"], row["worker_pid"]) == ("PENDING", False, None, None)
    assert not (traces / "t").exists() and await rows.attempts("t") == []


async def test_w21b_l27_a_start_whose_reply_is_lost_runs_once_after_it_came_back(
    basic: Any, rows: Rows, database_url: str, traces: Path
) -> None:
    await on_update(database_url, f"{STARTING} AND NEW.claim_seq = 1", "PERFORM pg_sleep(1.5); RETURN NEW;")
    async with network(database_url) as net, running_worker(basic.app, processes=1, dsn=net.url):
        await (await send(basic.noop)).get_async(timeout_ms=30_000)
        await insert(rows, ("t", "pid", '{"name": "t"}', 50))
        await asleep(rows)
        net.cut()
        stored = await rows.until("t", "RUNNING")
        net.mend()
        row = await rows.until("t", "COMPLETED", timeout=40)
    assert (stored["status"], stored["claim_seq"]) == ("RUNNING", 1)
    assert (row["claim_seq"], row["retry_count"]) == (2, 0)
    assert len((traces / "t").read_text().splitlines()) == 1
    assert [attempt["outcome"] for attempt in await rows.attempts("t")] == ["COMPLETED"]
