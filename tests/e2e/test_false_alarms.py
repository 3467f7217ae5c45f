"""Signs that mislead: a session that is reset, a pid that another process has got, a clock that is stepped."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.killing import MORTAL, begun, lines, outcomes, send, worker_of
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess, running_worker

pytestmark = pytest.mark.e2e

RESETS = 6
RESET = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'horsies worker listener'"
    " AND datname = current_database()"
)


async def given_successor(rows: Rows, template: str, process: psutil.Process) -> None:
    """A worker that died a while ago, and whose pid another process has now; it had a task."""
    await rows.all(
        "WITH worker AS (INSERT INTO horsies_workers (worker_id, pid, process_start, liveness_key, recovery, hostname,"
        "  boot_id, pid_namespace)"
        "  SELECT 'reused', %s, process_start - 1, 1, recovery, hostname, boot_id, pid_namespace"
        "  FROM horsies_workers WHERE worker_id = %s)"
        " INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claimed_at,"
        "  claim_expires_at, claim_seq, kwargs) VALUES ('reused', 'tick', 'CLAIMED', TRUE, 'reused', now(),"
        "  now() + interval '1 h', 1, '{\"name\": \"reused\"}') RETURNING id",
        process.pid,
        template,
    )


async def test_r100_resets_and_clocks_deceive_nobody_and_a_reused_pid_is_noticed(
    mortal: Any, rows: Rows, database_url: str, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = mortal()
    real = time.time
    with WorkerProcess(database_url, locator=MORTAL) as other:
        handle = await send(module.hold, "healthy", 5.0)
        await begun(traces, "healthy")
        healthy = await worker_of(rows, other)
        monkeypatch.setattr(time, "time", lambda: real() + 3600)  # the judge's clock is an hour ahead
        async with running_worker(module.app, app_locator=MORTAL):
            for n in range(RESETS):
                assert await eventually(lambda: rows.all(RESET), what="a session to reset")
                if n == RESETS // 2:
                    monkeypatch.setattr(time, "time", lambda: real() - 3600)  # and now behind
                    await given_successor(rows, healthy["worker_id"], psutil.Process(os.getpid()))
                await asyncio.sleep(0.25)  # between two blows
            row = await rows.until("reused", "COMPLETED")
            assert await rows.status(handle.task_id) == "RUNNING"
            assert await worker_of(rows, other)
            assert (await handle.get_async(timeout_ms=30_000)).is_ok()
    assert row["claim_seq"] == 2
    assert (await rows.task(handle.task_id))["claim_seq"] == 1
    assert await outcomes(rows, handle.task_id) == [("COMPLETED", False)]
    assert lines(traces, "healthy") == ["begin", "end"]
