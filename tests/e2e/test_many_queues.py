"""A worker that serves many queues (W-22a), and one that serves a queue for its share (W-22b)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.conftest import LIMITS
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e

ONE_BY_ONE = {"app_locator": f"{LIMITS}:app", "processes": 1, "run_ahead_ms": 0}


def order_of(traces: Path) -> list[str]:
    path = traces / "order"
    return [line.split()[1] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("share", [None, "0.25"])
async def test_w22b_a_queue_with_a_share_is_not_starved(
    limits: Any, rows: Rows, traces: Path, share: str | None
) -> None:
    module = limits(**({"SHARE": share} if share else {}))
    for task, count in ((module.free, 20), (module.urgent, 40)):
        (await task.send_many_async([task.prepare(0.0) for _ in range(count)])).unwrap()
    async with running_worker(module.app, **ONE_BY_ONE):
        await eventually(lambda: len(order_of(traces)) == 60, 60, what="the end of all tasks")
    first = order_of(traces)[:40]
    assert first.count("free") in (range(8, 12) if share else [0])


async def send_at_once(database_url: str, **counts: tuple[Any, int, float]) -> None:
    """So many tasks of each kind, in one transaction."""
    async with await psycopg.AsyncConnection.connect(database_url) as conn:
        for task, count, seconds in counts.values():
            inside = task.with_options(connection=conn)
            (await inside.send_many_async([task.prepare(seconds) for _ in range(count)])).unwrap()


@pytest.mark.slow("measures shares over many tasks")
@pytest.mark.parametrize("concurrency", [1, 2])
async def test_w22b_a_queue_that_was_empty_is_owed_nothing(
    limits: Any, rows: Rows, traces: Path, database_url: str, concurrency: int
) -> None:
    """Also where a sync task that waits may not be seen, because no child is idle."""
    module = limits(SHARE="0.25")
    async with running_worker(module.app, **ONE_BY_ONE, concurrency=concurrency) as worker:
        await send_at_once(database_url, urgent=(module.urgent, 160, 0.0))
        await eventually(lambda: len(order_of(traces)) == 160, 60, what="the end of all urgent tasks")
        await eventually(lambda: worker._claimer.is_dry, 30, what="an idle worker")
        await send_at_once(database_url, free=(module.free, 40, 0.0), urgent=(module.urgent, 40, 0.0))
        await eventually(lambda: len(order_of(traces)) == 240, 60, what="the end of all tasks")
    assert order_of(traces)[160:200].count("free") in range(8, 13)


@pytest.mark.slow("measures shares over many tasks")
async def test_w22b_a_queue_whose_sync_tasks_find_no_idle_child_stays_owed(
    limits: Any, rows: Rows, traces: Path, database_url: str
) -> None:
    """One async task keeps the only child from being idle, while others come and go beside it."""
    module = limits(SHARE="0.5")
    hold = traces / "hold"
    hold.touch()
    async with running_worker(module.app, **ONE_BY_ONE, concurrency=2) as worker:
        anchor = (await module.urgent_async.send_async(60.0)).unwrap()
        await rows.until(anchor.task_id, "RUNNING", timeout=30)
        await send_at_once(database_url, free=(module.free, 3, 0.0), urgent=(module.urgent_async, 20, 0.0))
        await eventually(lambda: worker._claimer._shares.due().get("free", 0) > 5, 30, what="much is owed")
        assert order_of(traces) == []
        hold.unlink()
        await eventually(lambda: order_of(traces) == ["free"] * 3, 30, what="the end of those that waited")


async def test_w22a_a_worker_of_many_queues_finds_the_tasks_of_each_in_their_order(
    limits: Any, rows: Rows, traces: Path
) -> None:
    module = limits(MORE_QUEUES="100")
    for task in (module.free, module.urgent, module.free):
        (await task.send_async(0.0)).unwrap()
    async with running_worker(module.app, **ONE_BY_ONE) as worker:
        await eventually(lambda: len(order_of(traces)) == 3, 30, what="the end of three tasks")
        await eventually(lambda: worker._claimer.is_dry, 30, what="an idle worker")
        (await module.urgent.send_async(0.0)).unwrap()  # a notification wakes it
        await eventually(lambda: len(order_of(traces)) == 4, 30, what="the end of another one")
    assert order_of(traces) == ["urgent", "free", "free", "urgent"]
