"""A payload that kills every child that is handed it is stopped after ten times, with the history of the exits; other
tasks of the queue go on (R-102)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import Configured
from tests.fenced_support import LOCATOR, begun, send
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e


@pytest.mark.slow("kills child after child")
async def test_r102_a_payload_that_no_child_survives_does_not_loop(
    fenced: Configured, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too large for the memory that a child may have: it dies while it reads, before it says that the task starts."""
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")  # else a thread has 64 MB in reserve that the limit does not count
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "131072")
    app = fenced(SMALL_ROOM="1")
    await rows.all(
        "INSERT INTO horsies_tasks (id, task_name, kwargs, priority)"
        " VALUES ('huge', 'swallow', '{\"text\": \"' || repeat('x', 16 << 20) || '\"}', 1) RETURNING id"
    )
    async with running_worker(app.app, app_locator=LOCATOR, processes=2):
        others = [await send(app.where) for _ in range(20)]
        row = await rows.until("huge", "COMPLETED", "FAILED", timeout=60)
        results = [await handle.get_async(timeout_ms=30_000) for handle in others]
    assert all(result.is_ok() for result in results)
    assert (row["status"], row["error_code"], row["retry_count"]) == ("FAILED", "WORKER_CRASHED", 0)
    assert row["claim_seq"] == 10 and row["failed_reason"].count("exited with code") == 10
    (attempt,) = await rows.attempts("huge")
    assert (attempt["outcome"], attempt["failed_reason"]) == ("WORKER_FAILURE", row["failed_reason"])
    assert json.loads(row["result"])["err"]["data"]["worker_pid"] == attempt["worker_pid"]


async def test_r102_only_the_next_in_line_counts_and_a_start_forgets(
    fenced: Configured, rows: Rows, traces: Path
) -> None:
    app = fenced()
    async with running_worker(app.app, app_locator=LOCATOR, run_ahead_ms=0):
        handle = await send(app.tick_once, "first", 60)
        behind = await send(app.where)
        child = await begun(traces, "first")
        await rows.all("UPDATE horsies_tasks SET start_failures = 7 RETURNING id")
        os.kill(child, signal.SIGKILL)
        await eventually(lambda: rows.attempts(handle.task_id))
        assert (await behind.get_async(timeout_ms=30_000)).is_ok()
        assert (await handle.get_async(timeout_ms=30_000)).is_ok()
    for task_id in (handle.task_id, behind.task_id):
        row = await rows.task(task_id)
        assert row["start_failures"] == 0, "it had started, so the count begins anew"
        assert row["failed_reason"] is None and row["status"] == "COMPLETED"
