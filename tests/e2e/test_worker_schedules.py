"""`horsies worker --with-scheduler`: a worker that also sends by the clock, on as many workers as one likes."""

from __future__ import annotations

import asyncio
import json
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.scheduler.plan import slot_task_id
from tests.factories import given_task
from tests.scheduler_support import HANGS, LOCATOR, Schedules, as_json
from tests.support import eventually
from tests.worker_support import ROOT, WorkerProcess

pytestmark = pytest.mark.e2e

APART = f"{ROOT / 'tests' / 'apps' / 'scheduled_apart.py'}:app"
DEFINITION = """
INSERT INTO horsies_schedules (name, definition) VALUES (
    'stored', '{"name": "stored", "task_name": "announce", "args": [{"title": "stored"}], "catch_up_missed": true,
                "pattern": {"type": "interval", "seconds": 1}}') RETURNING 1
"""


async def test_s41_w01_workers_that_schedule_send_each_slot_once_and_run_no_code_of_the_app(
    database_url: str, traces: Path
) -> None:
    rows = Schedules(database_url)
    await rows.all(DEFINITION)
    env = {"TRACES": str(traces)}
    with (
        WorkerProcess(database_url, "--with-scheduler", locator=APART, env=env) as one,
        WorkerProcess(database_url, "--with-scheduler", locator=APART, env=env) as two,
    ):

        async def both_have_run() -> bool:
            done = await rows.all("SELECT result FROM horsies_tasks WHERE status = 'COMPLETED'")
            return all(sum(name in row["result"] for row in done) >= 2 for name in ("code", "stored"))

        await eventually(both_have_run, 60)
        supervisors = {one.process.pid, two.process.pid}
        for worker in (one, two):
            code, output = await asyncio.to_thread(worker.stop)
            assert code == 0, output
    importers = {int(line) for line in (traces / "imports").read_text().split()}
    assert importers and not importers & supervisors, "arguments are encoded in a process of its own"
    sent = {task["id"] for task in await rows.sent()}
    expected = {
        slot_task_id(name, state["last_run_at"] - n * timedelta(seconds=1))
        for name, state in (await rows.states()).items()
        for n in range(state["run_count"])
    }
    assert sent == expected and set(await rows.states()) == {"code", "stored"}


async def test_s41_w50_a_worker_that_stops_does_not_schedule_any_more(
    db: AsyncConnection[Any], database_url: str, traces: Path
) -> None:
    rows, go = Schedules(database_url), traces / "go"
    task_id = await given_task(db, task_name="wait_for", args=json.dumps([str(go)]))
    env = {"TRACES": str(traces)}
    with WorkerProcess(database_url, "--with-scheduler", "--processes", "1", locator=APART, env=env) as worker:
        await rows.until(task_id, "RUNNING")
        await eventually(lambda: rows.all("SELECT 1 FROM horsies_schedule_state WHERE run_count > 0"), 20)
        worker.process.send_signal(signal.SIGTERM)
        # Every second is its pattern: nobody sends what is due any more.
        overdue = "SELECT 1 FROM horsies_schedule_state WHERE next_run_at < now() - interval '2 s'"
        await eventually(lambda: rows.all(overdue), 20)
        assert await rows.status(task_id) == "RUNNING"
        go.touch()
        code, output = await asyncio.to_thread(worker.wait)
    assert code == 0, output
    assert await rows.status(task_id) == "COMPLETED"


async def test_s39_w01_arguments_that_hang_the_helper_keep_the_other_schedules_not_back(database_url: str) -> None:
    rows = Schedules(database_url)
    await rows.all(HANGS)
    env = {"SCHEDULES": as_json({"name": "s", "pattern": {"type": "interval", "seconds": 1}})}
    with WorkerProcess(database_url, "--with-scheduler", locator=LOCATOR, env=env) as worker:
        await eventually(lambda: rows.state_is_overdue("hangs"), 60)
        await eventually(lambda: rows.runs("s"), 30)  # asked for together with the one that hangs: then alone
        begun = (await rows.state())["run_count"]
        await eventually(lambda: rows.runs("s", begun + 2), 30)
        code, output = await asyncio.to_thread(worker.stop)
        assert code == 0, output
    assert (await rows.state("hangs"))["run_count"] == 0
