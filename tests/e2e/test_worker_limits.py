"""Caps, order and fairness with several real workers at once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import LIMITS
from tests.worker_support import Rows, make_worker, running_worker

pytestmark = pytest.mark.e2e


async def highest(rows: Rows, done: asyncio.Event, where: str) -> int:
    """The largest number of rows in flight that was ever seen while the test ran."""
    most = 0
    while not done.is_set():
        (row,) = await rows.all(f"SELECT count(*) AS n FROM horsies_tasks WHERE {where}")  # noqa: S608
        most = max(most, row["n"])
        await asyncio.sleep(0.01)
    return most


async def run_all(module: Any, rows: Rows, where: str, workers: int, queue: str, count: int, **settings: Any) -> int:
    done = asyncio.Event()
    watch = asyncio.create_task(highest(rows, done, where))
    async with AsyncExitStack() as stack:
        for _ in range(workers):
            await stack.enter_async_context(running_worker(module.app, app_locator=f"{LIMITS}:app", **settings))
        task = getattr(module, queue)
        handles = [(await task.send_async(0.05)).unwrap() for _ in range(count)]
        results = [await handle.get_async(timeout_ms=60_000) for handle in handles]
    done.set()
    assert all(result.is_ok() for result in results)
    return await watch


async def test_w26_the_cluster_cap_is_exact_under_several_workers(limits: Any, rows: Rows) -> None:
    module = limits(CLUSTER_CAP="3")
    most = await run_all(module, rows, "status IN ('CLAIMED', 'RUNNING')", 3, "free", 60, processes=2)
    assert 2 <= most <= 3


async def test_w23_a_queue_limit_is_exact_under_several_workers(limits: Any, rows: Rows) -> None:
    module = limits()
    where = "status IN ('CLAIMED', 'RUNNING') AND queue_name = 'narrow'"
    most = await run_all(module, rows, where, 3, "narrow", 40, processes=2)
    assert most == 2


async def test_w24_a_strict_worker_never_holds_more_than_its_slots(limits: Any, rows: Rows) -> None:
    module = limits()
    most = await run_all(module, rows, "status IN ('CLAIMED', 'RUNNING')", 1, "free", 60, processes=2, run_ahead_ms=0)
    assert most == 2


async def test_w24_a_prefetching_worker_holds_its_slots_and_the_buffer(limits: Any, rows: Rows) -> None:
    module = limits(PREFETCH="3")
    most = await run_all(module, rows, "status IN ('CLAIMED', 'RUNNING')", 1, "free", 60, processes=2, run_ahead_ms=0)
    assert 3 <= most <= 5


async def test_w29_a_queue_with_limit_zero_is_not_served(limits: Any, rows: Rows) -> None:
    module = limits()
    stopped = (await module.stopped.send_async(0.0)).unwrap()
    async with running_worker(module.app, app_locator=f"{LIMITS}:app"):
        served = (await module.free.send_async(0.0)).unwrap()
        assert (await served.get_async(timeout_ms=30_000)).is_ok()
    assert await rows.status(stopped.task_id) == "PENDING"


async def test_w81_run_once_serves_capped_queues_to_their_end(limits: Any, rows: Rows) -> None:
    module = limits()
    for _ in range(7):
        (await module.narrow.send_async(0.01)).unwrap()
    worker = make_worker(module.app, app_locator=f"{LIMITS}:app", processes=4, concurrency=None)
    assert await worker.run_once() == 0
    (row,) = await rows.all("SELECT count(*) AS n FROM horsies_tasks WHERE status = 'COMPLETED'")
    assert row["n"] == 7


async def test_w22_queues_are_served_by_priority(limits: Any, rows: Rows, traces: Path) -> None:
    module = limits()
    for _ in range(5):
        (await module.free.send_async(0.0)).unwrap()
        (await module.urgent.send_async(0.0)).unwrap()
    async with running_worker(module.app, app_locator=f"{LIMITS}:app", run_ahead_ms=0):
        last = (await module.free.send_async(0.0)).unwrap()
        await last.get_async(timeout_ms=30_000)
    order = [line.split()[1] for line in (traces / "order").read_text().splitlines()]
    assert order[:5] == ["urgent"] * 5


async def test_w06_a_worker_can_serve_some_queues_only(limits: Any, rows: Rows) -> None:
    module = limits()
    other = (await module.free.send_async(0.0)).unwrap()
    async with running_worker(module.app, app_locator=f"{LIMITS}:app", queues=("urgent",)):
        mine = (await module.urgent.send_async(0.0)).unwrap()
        assert (await mine.get_async(timeout_ms=30_000)).is_ok()
    assert await rows.status(other.task_id) == "PENDING"


async def test_w82_several_workers_share_the_work_and_run_each_task_once(basic: Any, rows: Rows, traces: Path) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(running_worker(basic.app))
        handles = [(await basic.pid.send_async("shared")).unwrap() for _ in range(400)]
        for handle in handles:
            assert (await handle.get_async(timeout_ms=60_000)).is_ok()
    assert len((traces / "shared").read_text().splitlines()) == 400
    (row,) = await rows.all("SELECT count(*) AS n, count(DISTINCT task_id) AS d FROM horsies_task_attempts")
    assert (row["n"], row["d"]) == (400, 400)
