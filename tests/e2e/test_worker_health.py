"""/healthz, /readyz and /metrics of a real worker: never ready when it is not, and ready again by itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from horsies.core import embedded
from tests.metrics_support import Series, fetch, free_port, readiness, scrape, value
from tests.network_support import network
from tests.support import eventually, eventually_sync
from tests.worker_support import Rows, WorkerProcess

pytestmark = pytest.mark.e2e

FAST = {"fsync": "off"}


@pytest.fixture
async def own_server(tmp_path: Path, traces: Path) -> AsyncIterator[tuple[str, Path]]:
    """A server of this test's own, to be stopped and started."""
    home = tmp_path / "pg"
    yield await asyncio.to_thread(embedded.ensure_running, home, settings=FAST), home
    await asyncio.to_thread(embedded.stop, home)


def until_ready(port: int) -> None:
    eventually_sync(lambda: readiness(port) == (200, {}), 60, what="the worker is ready")


def until_says(port: int, *what: str) -> None:
    def says() -> bool:
        status, reasons = readiness(port)
        return status == 503 and set(what) <= reasons.keys()

    eventually_sync(says, 30, what=f"the worker is not ready because of: {', '.join(what)}")


async def test_readyz_follows_the_database_away_and_back(own_server: tuple[str, Path]) -> None:
    url, home = own_server
    port = free_port()
    await asyncio.to_thread(embedded.stop, home)
    with WorkerProcess(url, "--metrics-port", str(port)) as worker:
        await asyncio.to_thread(until_says, port, "starting", "database")
        await asyncio.to_thread(embedded.ensure_running, home, settings=FAST)
        await asyncio.to_thread(until_ready, port)

        await asyncio.to_thread(embedded.stop, home)
        await asyncio.to_thread(until_says, port, "database", "listener")
        status, body = fetch(port, "/healthz")
        assert status == 200 and json.loads(body)["status"] == "alive", "a worker must not be restarted for that"
        seen = await asyncio.to_thread(scrape, port)
        assert value(seen, "horsies_database_up") == 0
        assert value(seen, "horsies_worker_ready") == 0
        assert value(seen, "horsies_worker_listener_connected") == 0
        assert not any(name == "horsies_queue_tasks" for name, _ in seen), "old numbers are not told as new ones"

        await asyncio.to_thread(embedded.ensure_running, home, settings=FAST)
        await asyncio.to_thread(until_ready, port)
        assert worker.stop()[0] == 0


async def test_probes_are_answered_while_forty_scrapes_hang_on_a_hanging_database(
    database_url: str, traces: Path
) -> None:
    port = free_port()
    async with network(database_url) as line:
        with WorkerProcess(line.url, "--metrics-port", str(port)) as worker:
            await asyncio.to_thread(until_ready, port)
            line.freeze()  # before the first scrape, so that there are no numbers that could be served again
            with contextlib.ExitStack() as stack:
                for _ in range(40):
                    hanging = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                    hanging.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                for _ in range(5):
                    status, body = await asyncio.to_thread(fetch, port, "/healthz")
                    assert status == 200 and json.loads(body)["status"] == "alive"
                await asyncio.to_thread(until_says, port, "database")
            line.mend()
            await asyncio.to_thread(until_ready, port)
            assert (await asyncio.to_thread(worker.stop))[0] == 0


async def test_a_worker_counts_what_it_does_misses_stopped_children_and_says_that_it_stops(
    database_url: str, basic: Any, rows: Rows, traces: Path
) -> None:
    port = free_port()
    with WorkerProcess(database_url, "--metrics-port", str(port), "--processes", "2") as worker:
        handles = [(await basic.add.send_async(n, 1)).unwrap() for n in range(3)]
        handles += [(await basic.flaky.send_async("again", 1)).unwrap(), (await basic.die.send_async("kill")).unwrap()]
        for handle in handles:
            await rows.until(handle.task_id, "COMPLETED", "FAILED", timeout=60)
        await asyncio.to_thread(until_ready, port)
        check_counts(await asyncio.to_thread(until_counted, port))

        family = psutil.Process(worker.process.pid).children(recursive=True)
        one = next(process for process in family if process.name().startswith("horsies-child"))
        one.suspend()  # SIGSTOP: idle and silent, nothing but its state tells
        missed = (503, {"children": "1 of 2 child processes are alive"})
        await eventually(lambda: readiness(port) == missed, what="it is missed")
        one.resume()
        await asyncio.to_thread(until_ready, port)

        handle = (await basic.nap.send_async(1.5, "last")).unwrap()
        await eventually(lambda: (traces / "last").exists(), what="the task runs")
        worker.process.send_signal(signal.SIGTERM)
        stopping = (503, {"stopping": "the worker takes no more tasks"})
        await eventually(lambda: readiness(port) == stopping, every=0.005, what="it says that it stops")
        assert (await rows.task(handle.task_id))["status"] == "RUNNING", "and it does so while it still works"
        assert worker.wait()[0] == 0
        with pytest.raises(AssertionError):
            fetch(port, "/healthz")


async def test_w30_the_run_of_every_brief_task_is_counted(database_url: str, basic: Any, traces: Path) -> None:
    """Of most of them only the end is reported."""
    port, labels = free_port(), {"queue": "default", "task": "noop"}
    with WorkerProcess(database_url, "--metrics-port", str(port), "--processes", "1") as worker:
        for handle in (await basic.noop.send_many_async([()] * 500)).unwrap():
            assert (await handle.get_async(timeout_ms=30_000)).is_ok()

        def are_counted() -> bool:
            seen = scrape(port)
            assert value(seen, "horsies_worker_tasks_total", outcome="completed", **labels) == 500
            return value(seen, "horsies_worker_task_run_seconds_count", task="noop") == 500

        await asyncio.to_thread(eventually_sync, are_counted)
        assert (await asyncio.to_thread(worker.stop))[0] == 0


def until_counted(port: int) -> Series:
    def counted() -> Series:
        seen = scrape(port)
        assert value(seen, "horsies_worker_crashed_tasks_total") == 1
        assert value(seen, "horsies_tasks", status="COMPLETED", queue="default", task="flaky") == 1
        return seen

    return eventually_sync(counted, what="the last end is counted")


def check_counts(seen: Series) -> None:
    labels = {"queue": "default", "task": "add"}
    assert value(seen, "horsies_worker_tasks_total", outcome="completed", **labels) == 3
    assert value(seen, "horsies_worker_tasks_total", outcome="retried", **{**labels, "task": "flaky"}) == 1
    assert value(seen, "horsies_worker_tasks_total", outcome="failed", **{**labels, "task": "die"}) == 1
    assert value(seen, "horsies_worker_child_ends_total", how="unexpected") == 1
    assert value(seen, "horsies_worker_task_run_seconds_count", task="add") == 3
    assert value(seen, "horsies_worker_task_queue_seconds_count", queue="default") == 5, "first starts only"
    for stage in ("claim", "start", "finalize"):
        assert (value(seen, f"horsies_worker_{stage}_batch_size_sum") or 0) >= 6, stage
        assert (value(seen, f"horsies_worker_{stage}_seconds_count") or 0) >= 1, stage
    assert (value(seen, "horsies_worker_memory_bytes", part="children") or 0) > 1e6
    assert value(seen, "horsies_worker_slots") == 2
    assert value(seen, "horsies_tasks", status="COMPLETED", **labels) == 3, "the database's numbers are there as well"
    assert value(seen, "horsies_queue_tasks", queue="default", state="due") == 0
    assert value(seen, "horsies_workers", state="live") == 1


async def test_metrics_port_without_the_extra_says_what_to_install(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "prometheus_client.py").write_text("raise ImportError('not here')\n")
    with WorkerProcess(database_url, "--metrics-port", "0", env={"PYTHONPATH": str(tmp_path)}) as worker:
        code, output = await asyncio.to_thread(worker.wait)
    assert code == 1
    assert 'pip install "horsies-pg[metrics]"' in output and "Traceback" not in output
