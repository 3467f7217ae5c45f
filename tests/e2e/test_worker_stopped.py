"""A worker that is stopped (SIGSTOP) past every threshold and then goes on: another has taken over, and nothing that
the old one does counts (R-11, R-56, R-101)."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from time import time
from typing import Any

import psutil
import pytest

from tests.e2e.conftest import Configured
from tests.fenced_support import LOCATOR, begun, in_thread, send, stopped, traces_of
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess, running_worker

TICKS_OF_A_SECOND = 50  # a clock would count the time that a busy machine gives to others
pytestmark = pytest.mark.e2e


async def nothing_of_the_old_one_counts(rows: Rows, task_id: str, old: str) -> None:
    """One attempt row per real attempt, one accepted result, no sign of life under a claim that is over."""
    row, (lost, won) = await rows.task(task_id), await rows.attempts(task_id)
    assert (lost["outcome"], lost["worker_id"], lost["will_retry"]) == ("WORKER_FAILURE", old, True)
    assert (won["outcome"], won["attempt"], lost["attempt"]) == ("COMPLETED", 2, 1)
    assert row["status"] == "COMPLETED" and row["claimed_by_worker_id"] != old
    assert row["result"] == f'{{"ok":{won["worker_pid"]}}}'
    beats = "SELECT * FROM horsies_heartbeats WHERE task_id = %s AND sender_id LIKE %s || '%%' AND sent_at > %s"
    assert await rows.all(beats, task_id, old, lost["finished_at"]) == []


async def test_r101_with_only_the_parent_stopped_its_children_have_ended_before_the_takeover(
    fenced: Configured, rows: Rows, traces: Path, database_url: str
) -> None:
    app = fenced()
    with WorkerProcess(database_url, locator=LOCATOR) as old:
        handle = await send(app.tick_once, "code", 60)
        child = await begun(traces, "code")
        (registered,) = await rows.all("SELECT worker_id FROM horsies_workers")
        old.process.send_signal(signal.SIGSTOP)
        async with running_worker(app.app, app_locator=LOCATOR):
            await rows.until(handle.task_id, "COMPLETED", timeout=30)
            lost = (await rows.attempts(handle.task_id))[0]
            last = max(trace.at for trace in traces_of(traces, "code") if trace.pid == child)
            assert last < lost["finished_at"].timestamp(), "its code ran on when the task was taken over"
            assert not psutil.pid_exists(child)
            old.process.send_signal(signal.SIGCONT)
            again = await send(app.where)
            assert (await again.get_async(timeout_ms=30_000)).is_ok()
        code, output = await in_thread(old.stop)
    assert code == 0, output
    assert "it heard nothing from its worker" in output or "75" in output
    await nothing_of_the_old_one_counts(rows, handle.task_id, registered["worker_id"])


async def test_r56_a_whole_worker_that_goes_on_after_a_pause_changes_nothing(
    fenced: Configured, rows: Rows, traces: Path, database_url: str
) -> None:
    app = fenced()
    with WorkerProcess(database_url, locator=LOCATOR) as old:
        handle = await send(app.tick_once, "code", 60)
        child = await begun(traces, "code")
        (registered,) = await rows.all("SELECT worker_id FROM horsies_workers")
        family = [old.process.pid, *(p.pid for p in psutil.Process(old.process.pid).children(recursive=True))]
        for pid in family:
            os.kill(pid, signal.SIGSTOP)
        for pid in family:
            await stopped(pid)
        async with running_worker(app.app, app_locator=LOCATOR):
            await rows.until(handle.task_id, "COMPLETED", timeout=30)
            continued = time()
            os.kill(old.process.pid, signal.SIGCONT)
            for pid in family[1:]:
                with contextlib.suppress(ProcessLookupError):  # its parent, which goes on, may have ended it already
                    os.kill(pid, signal.SIGCONT)
            await eventually(lambda: not psutil.pid_exists(child), what="the end of the child that was stopped")
        ticks = [trace for trace in traces_of(traces, "code") if trace.pid == child and trace.at > continued]
        assert len(ticks) <= TICKS_OF_A_SECOND, "a child may run on for at most a second after it continues"
        assert await is_back(rows, registered["worker_id"])
        code, output = await in_thread(old.stop)
    assert code == 0, output
    await nothing_of_the_old_one_counts(rows, handle.task_id, registered["worker_id"])


async def is_back(rows: Rows, worker_id: str) -> Any:
    """The worker is registered (again) and says that it lives."""
    alive = "SELECT 1 FROM horsies_workers WHERE worker_id = %s AND last_heartbeat_at > now() - interval '30 s'"
    return await eventually(lambda: rows.all(alive, worker_id), 35, what="the worker says that it lives")
