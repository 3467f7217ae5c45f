"""SIGKILL of a child in user code: that task is recovered at once, its neighbours notice nothing, and there is a warm
successor.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from horsies.core.worker.service import Worker
from tests.e2e.killing import MORTAL, begun, lines, outcomes, send
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess, running_worker

pytestmark = pytest.mark.e2e


async def test_w35_w36_a_killed_child_costs_its_own_task_only(mortal: Any, rows: Rows, traces: Path) -> None:
    module = mortal()
    async with running_worker(module.app, app_locator=MORTAL, processes=3) as worker:
        victim, again = await send(module.hold, "victim"), await send(module.hold_once, "again")
        neighbour = await send(module.hold, "neighbour")
        pids = [await begun(traces, name) for name in ("victim", "again", "neighbour")]
        for pid in pids[:2]:
            os.kill(pid, signal.SIGKILL)
        row = await rows.until(victim.task_id, "FAILED")
        assert await rows.status(neighbour.task_id) == "RUNNING"
        assert row["error_code"] == "WORKER_CRASHED"
        assert f"child process {pids[0]}" in row["failed_reason"] and "SIGKILL" in row["failed_reason"]
        assert re.search(r"peak memory \d\d+ MB", row["failed_reason"])
        assert (await again.get_async(timeout_ms=30_000)).unwrap() == 2
        await eventually(lambda: len(worker._children.usable) == 3, what="three children are warm again")
        assert {child.pid for child in worker._children.usable} & set(pids) == {pids[2]}
        (traces / "neighbour.go").touch()
        assert (await neighbour.get_async(timeout_ms=30_000)).unwrap() == pids[2]
        await all_slots_free(worker)
        path = worker._journal.path
        assert path is not None and path.exists()
    assert await outcomes(rows, victim.task_id) == [("WORKER_FAILURE", False)]
    assert await outcomes(rows, again.task_id) == [("WORKER_FAILURE", True), ("COMPLETED", False)]
    assert await outcomes(rows, neighbour.task_id) == [("COMPLETED", False)]
    assert [lines(traces, name) for name in ("victim", "again")] == [["begin"], ["begin", "begin"]]
    assert not path.exists()  # it stopped gracefully


async def test_w41_the_death_of_the_fork_server_is_named_as_the_cause(
    mortal: Any, rows: Rows, traces: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its children end with it: they were not killed for anything that their tasks did."""
    module = mortal()
    async with running_worker(module.app, app_locator=MORTAL, processes=3) as worker:
        victim, again = await send(module.hold, "victim"), await send(module.hold_once, "again")
        for name in ("victim", "again"):
            await begun(traces, name)
        server = worker._children.launcher.pid
        assert server is not None
        os.kill(server, signal.SIGKILL)
        row = await rows.until(victim.task_id, "FAILED")
        assert (await again.get_async(timeout_ms=30_000)).unwrap() == 2
        await eventually(lambda: len(worker._children.usable) == 3, what="three children are warm again")
        assert worker._children.launcher.pid not in (None, server)
    cause = f"the fork server, process {server}, was killed by SIGKILL"
    assert row["error_code"] == "WORKER_CRASHED" and cause in row["failed_reason"]
    assert cause in (await rows.attempts(again.task_id))[0]["failed_reason"]
    said = [record.getMessage() for record in caplog.records if cause in record.getMessage()]
    assert sum(line.startswith(cause) for line in said) == 1, said
    assert sum(line.startswith("child process horsies-child-") for line in said) == 3, said


async def test_w41_the_worker_command_replaces_the_fork_server_that_it_has_forked(
    mortal: Any, database_url: str
) -> None:
    module = mortal()
    with WorkerProcess(database_url, locator=MORTAL) as worker:
        assert (await (await send(module.hold, "before", 0)).get_async(timeout_ms=30_000)).is_ok()
        [forked] = psutil.Process(worker.process.pid).children()
        assert forked.name() == "horsies-forks"
        forked.kill()
        assert (await (await send(module.hold, "after", 0)).get_async(timeout_ms=30_000)).is_ok()
        # The old child may have run this task before it ended.
        children = psutil.Process(worker.process.pid).children
        started = await eventually(lambda: next((one for one in children() if one.pid != forked.pid), None))
        assert "forkserver.py" in " ".join(started.cmdline())
        code, output = await asyncio.to_thread(worker.stop)
    assert code == 0, output


async def all_slots_free(worker: Worker) -> None:
    """Of the start journal; what is not given back would be missing one day."""
    await eventually(lambda: len(worker._journal._free) == worker.plan.journal_slots, what="all slots are free")


async def test_r103_a_successor_that_cannot_write_the_journal_ends_it(mortal: Any, rows: Rows, traces: Path) -> None:
    module = mortal()
    async with running_worker(module.app, app_locator=MORTAL) as worker:
        await send(module.kill_child, "killer")
        path = await eventually(lambda: worker._journal.path)
        path.unlink()
        await eventually(lambda: worker._journal.path is None, what="the journal is given up")
        assert (await (await send(module.hold, "after", 0)).get_async(timeout_ms=30_000)).is_ok()
