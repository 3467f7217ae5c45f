"""SIGKILL of the supervisor only: its children end by themselves, and nothing of theirs is written later. A worker that
starts afterwards finds what was left.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.killing import MORTAL, begun, family_of, lines, outcomes, send
from tests.worker_support import Rows, WorkerProcess, running_worker

pytestmark = pytest.mark.e2e


async def test_w54_r100_children_end_with_their_supervisor_and_write_nothing_more(
    mortal: Any, rows: Rows, database_url: str, traces: Path
) -> None:
    module = mortal()
    handle = await send(module.hold, "orphan", 2.5)
    with WorkerProcess(database_url, "--processes", "2", locator=MORTAL) as victim:
        pid = await begun(traces, "orphan")
        family = family_of(victim)
        assert pid in {process.pid for process in family} and len(family) == 3
        victim.process.kill()
        _, alive = psutil.wait_procs(family, timeout=5)
        assert not alive
        victim.wait()
    before = await rows.all("SELECT * FROM horsies_heartbeats")
    assert await rows.status(handle.task_id) == "RUNNING"
    async with running_worker(module.app, app_locator=MORTAL):
        await rows.until(handle.task_id, "FAILED")
    assert await outcomes(rows, handle.task_id) == [("WORKER_FAILURE", False)]
    assert await rows.all("SELECT * FROM horsies_heartbeats") == before
    assert lines(traces, "orphan") == ["begin"]
