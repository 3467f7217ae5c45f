"""The clock of one host is wrong by an hour, a worker's or a producer's: it has no effect. Only the database's clock
decides what is due, stale or expired; a worker judges its own silence by a clock that nobody sets. If the database's
clock itself is set, nobody is dead because of that (R-23)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest

from tests.e2e.conftest import Configured
from tests.fenced_support import LOCATOR, begun, in_thread, send
from tests.support import eventually
from tests.worker_support import ROOT, Rows, WorkerProcess, running_worker

pytestmark = pytest.mark.e2e

HOUR = 3600.0
# Python imports this before anything else, in the worker, in its fork server and so in its children.
WRONG = """
import datetime, time

SHIFT = {shift}
real_time, real_gettime, Right = time.time, time.clock_gettime, datetime.datetime

class Wrong(Right):
    @classmethod
    def now(cls, tz=None):
        return Right.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls):
        return Right.fromtimestamp(time.time(), datetime.timezone.utc).replace(tzinfo=None)

time.time = lambda: real_time() + SHIFT
time.time_ns = lambda: int(time.time() * 1e9)
time.clock_gettime = lambda clock: real_gettime(clock) + (SHIFT if clock == time.CLOCK_REALTIME else 0)
datetime.datetime = Wrong
"""
PRODUCER = """
import sys
from tests.apps.fenced import app, where
import time
assert abs(time.time() - float(sys.argv[1])) > 3000, "the clock is right"
print(where.send().unwrap().task_id)
print(where.schedule(1).unwrap().task_id)
"""


def host(place: Path, shift: float) -> dict[str, str]:
    """The environment of a host whose clock is wrong by so many seconds."""
    place.mkdir()
    place.chmod(0o755)
    (place / "sitecustomize.py").write_text(WRONG.format(shift=shift))
    return {"PYTHONPATH": f"{place}{os.pathsep}{ROOT}"}


async def test_the_clock_of_a_workers_host_has_no_effect(
    fenced: Configured, rows: Rows, traces: Path, database_url: str, tmp_path: Path
) -> None:
    """Neither is it taken for dead nor does it take another for dead, by the silence of tasks or of workers."""
    app = fenced(SWEEPING="2")
    hosts = [host(tmp_path / "fast", HOUR), host(tmp_path / "slow", -HOUR)]
    with (
        WorkerProcess(database_url, locator=LOCATOR, env=hosts[0]) as fast,
        WorkerProcess(database_url, locator=LOCATOR, env=hosts[1]) as slow,
    ):
        async with running_worker(app.app, app_locator=LOCATOR):
            await eventually(lambda: rows.all("SELECT 1 FROM horsies_workers OFFSET 2"), what="all three work")
            sent = [await send(app.tick_time, f"code {n}", 4.0) for n in range(3)]  # one for each
            told = [(await handle.get_async(timeout_ms=30_000)).unwrap() - time.time() for handle in sent]
            assert len(await rows.all("SELECT worker_id FROM horsies_workers")) == 3
        for worker in (fast, slow):
            code, output = await in_thread(worker.stop)
            assert code == 0, output
    assert sorted(round(shift / HOUR) for shift in told) == [-1, 0, 1], "the clocks are right"
    for handle in sent:
        assert [a["outcome"] for a in await rows.attempts(handle.task_id)] == ["COMPLETED"]


async def test_the_clock_of_a_producers_host_has_no_effect(
    fenced: Configured, rows: Rows, database_url: str, tmp_path: Path
) -> None:
    app = fenced()
    command = [sys.executable, "-c", PRODUCER, str(time.time())]
    ids: list[str] = []
    for name, shift in (("fast", HOUR), ("slow", -HOUR)):
        env = {**os.environ, **host(tmp_path / name, shift), "DATABASE_URL": database_url}
        sent = await asyncio.to_thread(
            subprocess.run, command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert sent.returncode == 0, sent.stderr
        ids += sent.stdout.split()
    async with running_worker(app.app, app_locator=LOCATOR):
        for task_id in ids:
            await rows.until(task_id, "COMPLETED", timeout=20)


NOTICED = "the clock of the database server was set by"
# Found before the functions of the same names in pg_catalog, by every session that begins after this.
SETTABLE = """
    CREATE SCHEMA clock;
    CREATE TABLE clock.shift AS SELECT interval '0' AS by;
    CREATE FUNCTION clock.now() RETURNS timestamptz LANGUAGE sql STABLE
        AS 'SELECT pg_catalog.now() + by FROM clock.shift';
    CREATE FUNCTION clock.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
        AS 'SELECT pg_catalog.statement_timestamp() + by FROM clock.shift';
    CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
        AS 'SELECT pg_catalog.clock_timestamp() + by FROM clock.shift';
    DO $$ BEGIN
        EXECUTE format('ALTER DATABASE %I SET search_path = public, clock, pg_catalog', current_database());
    END $$
"""


@pytest.fixture
async def server_clock(database_url: str) -> AsyncIterator[Callable[[float], Awaitable[None]]]:
    """Sets the clock that this database's statements see, by so many seconds."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as conn:
        await conn.execute(SETTABLE)

    async def set_by(seconds: float) -> None:
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as conn:
            read = "SELECT extract(epoch FROM now())::float8"
            [(before,)] = await (await conn.execute(read)).fetchall()
            await conn.execute("UPDATE clock.shift SET by = by + make_interval(secs => %s)", [seconds])
            [(after,)] = await (await conn.execute(read)).fetchall()
            assert abs(after - before - seconds) < 60, "the clock does not move"

    yield set_by


@pytest.mark.parametrize("sweeping", ["", "6"], ids=["reaper", "sweeper"])
async def test_r23_a_server_whose_clock_is_set_makes_nobody_dead(
    fenced: Configured,
    rows: Rows,
    traces: Path,
    server_clock: Callable[[float], Awaitable[None]],
    sweeping: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Again and again while tasks run: whatever the moment, some heartbeats are older than the threshold then. Not the
    shortest thresholds: a machine so busy that nothing runs for two seconds proves nothing about clocks."""
    app = fenced(SWEEPING=sweeping, RUNNING_MS="6000")
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(running_worker(app.app, app_locator=LOCATOR, processes=2))
        await eventually(lambda: rows.all("SELECT 1 FROM horsies_workers OFFSET 1"), what="both work")
        sent = [await send(app.until_open, f"code {n}") for n in range(4)]
        for n in range(4):
            await begun(traces, f"code {n}")
        for step in range(30):
            await asyncio.sleep(1.3)  # not a multiple of the interval of any heartbeat or look
            await server_clock((600.0, 600.0, -600.0, 600.0, 3600.0)[step % 5])
            if step >= 4 and NOTICED in caplog.text:  # on a busy machine all may have beaten before anybody looks
                break
        for n in range(4):
            (traces / f"code {n}.open").touch()
        for handle in sent:
            assert (await handle.get_async(timeout_ms=60_000)).is_ok()
    for handle in sent:
        assert [a["outcome"] for a in await rows.attempts(handle.task_id)] == ["COMPLETED"]
    assert NOTICED in caplog.text


async def test_r23_who_is_dead_is_found_after_the_clock_was_set(
    fenced: Configured, rows: Rows, traces: Path, server_clock: Callable[[float], Awaitable[None]], database_url: str
) -> None:
    app = fenced()
    with WorkerProcess(database_url, locator=LOCATOR) as doomed:
        handle = await send(app.tick_once, "code", 600)
        await begun(traces, "code")
        doomed.process.kill()
    async with running_worker(app.app, app_locator=LOCATOR) as worker:
        await eventually(lambda: rows.all("SELECT 1 FROM horsies_workers WHERE worker_id = %s", worker.worker_id))
        await server_clock(600.0)
        await rows.until(handle.task_id, "COMPLETED", timeout=30)
    assert [a["outcome"] for a in await rows.attempts(handle.task_id)] == ["WORKER_FAILURE", "COMPLETED"]
