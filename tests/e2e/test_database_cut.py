"""The database is away, for one worker or for all, at every point of a task's way: nothing is lost, nothing finished
twice, results in hand are written when it is back, and who is cut off has stopped before others take over (R-23,
R-101)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from time import time
from typing import Any

import psutil
import psycopg
import pytest

from horsies.core import embedded
from horsies.core.sql import load
from tests.e2e.conftest import FENCED, Configured, configurable
from tests.fenced_support import LOCATOR, begun, send, traces_of
from tests.network_support import network
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e

SILENCE_S = 4


@pytest.mark.parametrize("how", ["cut", "freeze"])
async def test_r101_a_worker_that_is_cut_off_has_stopped_its_code_before_others_take_over(
    fenced: Configured, rows: Rows, traces: Path, database_url: str, how: str
) -> None:
    app = fenced()
    async with network(database_url) as net, running_worker(app.app, app_locator=LOCATOR, dsn=net.url) as old:
        handle = await send(app.tick_once, "code", 60)
        child = await begun(traces, "code")
        getattr(net, how)()
        await eventually(lambda: old._dispatcher.is_shut, what="it knows that its signs of life do not arrive")
        async with running_worker(app.app, app_locator=LOCATOR):
            await rows.until(handle.task_id, "COMPLETED", timeout=30)
        lost, won = await rows.attempts(handle.task_id)
        last = max(trace.at for trace in traces_of(traces, "code") if trace.pid == child)
        assert last < lost["finished_at"].timestamp(), "its code ran on when the task was taken over"
        assert not psutil.pid_exists(child)
        net.mend()
        again = await send(app.where)  # there is nobody else now
        assert (await again.get_async(timeout_ms=30_000)).is_ok()
    assert (lost["worker_id"], lost["outcome"], won["outcome"]) == (old.worker_id, "WORKER_FAILURE", "COMPLETED")
    assert won["worker_id"] != old.worker_id and len(await rows.attempts(handle.task_id)) == 2


async def test_r101_a_worker_whose_tasks_are_enrolled_stops_before_it_can_be_swept(
    fenced: Configured, rows: Rows, traces: Path, database_url: str
) -> None:
    """Its tasks could be silent for long, but a worker may be swept after two seconds (R-44). Here nobody does; so when
    the database answers, the worker recovers the task itself (W-35)."""
    app = fenced(SWEEPING="2", RUNNING_MS="60000")
    for name in ("first", "second", "third"):
        async with network(database_url) as net, running_worker(app.app, app_locator=LOCATOR, dsn=net.url) as worker:
            handle = await send(app.tick_once, name, 60)
            child = await begun(traces, name)
            net.cut()
            await eventually(partial(_is_gone, child), what="the end of its child")
            net.mend()
            await rows.until(handle.task_id, "COMPLETED", timeout=30)
        lost, won = await rows.attempts(handle.task_id)
        assert (lost["outcome"], won["outcome"]) == ("WORKER_FAILURE", "COMPLETED")
        assert lost["worker_id"] == worker.worker_id
        if "confirmed no heartbeat" in lost["failed_reason"]:
            break
        # The machine held the worker up for so long that its child, which heard nothing from it, ended first.
        assert "it heard nothing from its worker for too long" in lost["failed_reason"]
    else:
        pytest.fail("the worker never stopped its child itself")


def _is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid)


CUTS = [
    ("tasks/claim", False),
    ("tasks/claim", True),
    ("tasks/start", False),
    ("tasks/start", True),
    ("tasks/complete", False),
    ("tasks/complete", True),
    ("tasks/heartbeat", False),
    ("workers/register", True),
    ("tasks/find_stale", False),
    ("workers/sweep_lock", True),
]


@pytest.mark.slow("a cut at every statement")
async def test_w61_a_cut_at_any_statement_loses_and_repeats_nothing(
    fenced: Configured, rows: Rows, traces: Path, database_url: str
) -> None:
    """Before the server gets it, and after it has done it. The outages are shorter than the thresholds."""
    app = fenced(SWEEPING="10", RUNNING_MS="10000")
    app.app.config = app.app.config.model_copy(update={"prefetch_buffer": 2, "claim_lease_ms": 30_000})
    handles = {}
    async with network(database_url) as net, running_worker(app.app, app_locator=LOCATOR, dsn=net.url):
        await (await send(app.where)).get_async(timeout_ms=30_000)
        for statement, is_heard in CUTS:
            name = f"{statement} {is_heard}".replace("/", " ")
            cut = net.cut_at(load(statement).split("%")[0], is_heard=is_heard)
            if statement == "tasks/start":  # an idle child's task would start with its claim
                handles[f"before {name}"] = await send(app.tick, f"before {name}", 0.5)
                await begun(traces, f"before {name}")
            handles[name] = await send(app.tick, name, 2.5 if "heartbeat" in name else 0.1)
            await eventually(cut.is_set, what=f"a cut at {name}")
            net.mend()
            assert (await handles[name].get_async(timeout_ms=30_000)).is_ok(), name
    for name, handle in handles.items():
        ends = [trace for trace in traces_of(traces, name) if trace.text == "end"]
        assert len(ends) == 1, f"{name} ran {len(ends)} times"
        attempts = await rows.attempts(handle.task_id)
        assert [a["outcome"] for a in attempts] == ["COMPLETED"], name
    assert await rows.all("SELECT id FROM horsies_tasks WHERE claimed") == []


async def test_r101_while_its_signs_of_life_fail_a_worker_starts_nothing(
    fenced: Configured, rows: Rows, traces: Path, database_url: str
) -> None:
    """Everything else would still work: only the heartbeats cannot be written. What runs goes on meanwhile."""
    app = fenced(RUNNING_MS="60000")
    async with (
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db,
        running_worker(app.app, app_locator=LOCATOR, processes=2) as worker,
    ):
        await db.execute("ALTER TABLE horsies_heartbeats RENAME TO hidden")
        running = await send(app.tick, "runs", 4.0)
        await begun(traces, "runs")
        await eventually(lambda: worker._dispatcher.is_shut, what="its heartbeat has failed")
        waiting = await send(app.where)
        with pytest.raises(AssertionError):
            await rows.until(waiting.task_id, "CLAIMED", "RUNNING", "COMPLETED", timeout=1.0)
        await db.execute("ALTER TABLE hidden RENAME TO horsies_heartbeats")
        assert (await waiting.get_async(timeout_ms=30_000)).is_ok()
        assert (await running.get_async(timeout_ms=30_000)).is_ok()
    assert [a["outcome"] for a in await rows.attempts(running.task_id)] == ["COMPLETED"]


@pytest.fixture
async def own_server(tmp_path: Path, traces: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Any, Path]]:
    """A server of this test's own, and the app on it, once for each of two workers."""
    home = tmp_path / "pg"
    url = await asyncio.to_thread(embedded.ensure_running, home)
    async with configurable(FENCED, url, monkeypatch) as configured:
        holder = configured(CLAIMER_MS="1000", RUNNING_MS=str(SILENCE_S * 1000))
        judge = configured(CLAIMER_MS="10000")
        (await holder.app.get_broker().ensure_schema_initialized()).unwrap()
        yield (holder, judge), home
    await asyncio.to_thread(embedded.stop, home)


async def test_r23_results_in_hand_are_written_when_the_database_is_back(
    own_server: tuple[Any, Path], traces: Path
) -> None:
    """It is away for longer than every threshold. The one that holds the result comes back later than another, which
    looks around every second and takes nobody for dead in its first twenty."""
    (holder, judge), home = own_server
    url = await asyncio.to_thread(embedded.ensure_running, home)
    rows = Rows(url)
    async with network(url) as net, running_worker(holder.app, app_locator=LOCATOR, dsn=net.url) as busy:
        handle = await send(holder.until_open, "code")
        await begun(traces, "code")
        async with running_worker(judge.app, app_locator=LOCATOR) as idle:  # there is nothing left for it to claim
            await eventually(lambda: rows.all("SELECT 1 FROM horsies_workers OFFSET 1"))
            net.cut()
            (traces / "code.open").touch()
            ends = await eventually(lambda: [trace for trace in traces_of(traces, "code") if trace.text == "end"])
            await asyncio.to_thread(embedded.stop, home)
            await eventually(lambda: time() > ends[0].at + SILENCE_S, what="a long silence")
            await asyncio.to_thread(embedded.ensure_running, home)
            await eventually(lambda: idle._fence.pulse._since is not None, what="the database answers the other")
            back = time()
            await eventually(lambda: time() > back + 2.5, what="the other has looked around")
            net.mend()
            row = await rows.until(handle.task_id, "COMPLETED", "FAILED", "PENDING", timeout=40)
    assert row["status"] == "COMPLETED" and row["claimed_by_worker_id"] == busy.worker_id
    assert [a["outcome"] for a in await rows.attempts(handle.task_id)] == ["COMPLETED"]
