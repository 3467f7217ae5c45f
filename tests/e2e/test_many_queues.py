"""A worker that serves many queues (W-22a), and one that serves a queue for its share (W-22b)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
