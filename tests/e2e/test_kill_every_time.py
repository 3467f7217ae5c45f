"""A task that kills its worker, or its child, every time: it is stopped after the limit, the evidence of how they ended
is in its attempts, and other tasks of its queue come to no harm.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.killing import MORTAL, begun, lines, outcomes, send, worker_of
from tests.worker_support import Rows, WorkerProcess, running_worker

pytestmark = pytest.mark.e2e

LIMIT = 1


async def test_r58_r100_a_task_that_kills_every_worker_is_stopped_after_the_limit(
    mortal: Any, rows: Rows, database_url: str, traces: Path
) -> None:
    module = mortal(MORTAL_LIMIT=str(LIMIT))
    with ExitStack() as stack:
        workers = [stack.enter_context(WorkerProcess(database_url, locator=MORTAL)) for _ in range(LIMIT + 2)]
        for worker in workers:
            await worker_of(rows, worker)
        killer = await send(module.kill_worker, "killer")
        others = [await send(module.tick, f"other{n}") for n in range(20)]
        row = await rows.until(killer.task_id, "FAILED", timeout=60)
        for handle in others:
            await rows.until(handle.task_id, "COMPLETED")
        assert sum(worker.process.poll() is None for worker in workers) == 1
    attempts = await rows.attempts(killer.task_id)
    assert [(a["outcome"], a["will_retry"], a["error_code"]) for a in attempts] == [
        *[("WORKER_FAILURE", True, "WORKER_CRASHED")] * LIMIT,
        ("WORKER_FAILURE", False, "WORKER_CRASHED"),
    ]
    assert row["error_code"] == "WORKER_CRASHED" and row["retry_count"] == 0
    assert {a["worker_pid"] for a in attempts} == {await begun(traces, "killer", n + 1) for n in range(LIMIT + 1)}
    assert all(a["worker_id"] in a["error_message"] for a in attempts)
    assert len(lines(traces, "killer")) == LIMIT + 1
    assert sorted((traces / "ticks").read_text().split()) == sorted(f"other{n}" for n in range(20))


async def test_r20_w35_a_task_that_kills_every_child_leaves_how_they_ended(
    mortal: Any, rows: Rows, traces: Path
) -> None:
    module = mortal()
    async with running_worker(module.app, app_locator=MORTAL, processes=2):
        killer = await send(module.kill_child, "killer")
        others = [await send(module.tick, f"other{n}") for n in range(20)]
        row = await rows.until(killer.task_id, "FAILED")
        for handle in others:
            await rows.until(handle.task_id, "COMPLETED")
    assert await outcomes(rows, killer.task_id) == [("WORKER_FAILURE", True)] * 2 + [("WORKER_FAILURE", False)]
    for attempt in await rows.attempts(killer.task_id):
        assert "SIGKILL" in attempt["failed_reason"] and str(attempt["worker_pid"]) in attempt["failed_reason"]
    assert row["retry_count"] == 2 and len(lines(traces, "killer")) == 3
