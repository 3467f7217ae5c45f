"""A task that was set to a later time runs at that time, whoever set it: workers here poll every five minutes, so that
only a wake-up can explain it (T-80).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from horsies import TaskHandle
from tests.doorbell_support import change_mode
from tests.e2e.conftest import DOORBELL, Configured
from tests.e2e.killing import kill_all, worker_of
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess

pytestmark = pytest.mark.e2e

LOCATOR = f"{DOORBELL}:app"
NEVER = "300000"
LATER_S = 4  # longer than an idle worker goes on looking by itself
PATIENCE_MS = 60_000
NOTIFYING = pytest.mark.parametrize("mode", ["always", "when_waiting"])


async def configured(doorbell: Configured, database_url: str, mode: str) -> Any:
    module = doorbell(NOTIFY=mode, POLL_MS=NEVER)
    await change_mode(database_url, mode)
    return module


@NOTIFYING
async def test_t80_an_idle_worker_starts_a_task_that_another_process_has_sent_for_later(
    doorbell: Configured, database_url: str, rows: Rows, traces: Path, mode: str
) -> None:
    module = await configured(doorbell, database_url, mode)
    with WorkerProcess(database_url, "--processes", "1", locator=LOCATOR) as worker:
        await worker_of(rows, worker)
        first = (await module.note.send_async("now")).unwrap()
        assert (await first.get_async(timeout_ms=PATIENCE_MS)).unwrap() == 1
        far = (await module.note.schedule_async(3600, "far")).unwrap()
        later: list[TaskHandle[Any]] = [
            (await task.schedule_async(delay, name)).unwrap()
            for task, delay, name in (
                (module.note, LATER_S + 3, "last"),
                (module.note, LATER_S, "left"),
                (module.note_right, LATER_S + 1, "right"),
            )
        ]
        for handle in later:
            assert (await handle.get_async(timeout_ms=PATIENCE_MS)).unwrap() == 1
        assert await rows.status(far.task_id) == "PENDING"
        assert worker.stop()[0] == 0
    found = [await rows.task(handle.task_id) for handle in later]
    assert all(row["started_at"] >= row["enqueued_at"] for row in found), "not before its time"


@NOTIFYING
async def test_t80_the_task_of_a_killed_worker_runs_again_when_its_pause_is_over(
    doorbell: Configured, database_url: str, rows: Rows, traces: Path, mode: str
) -> None:
    """Another worker of the host finds the death and sets the retry; nobody remembers it as its own."""
    module = await configured(doorbell, database_url, mode)
    with WorkerProcess(database_url, "--processes", "1", locator=LOCATOR) as victim:
        handle = (await module.hold_once.send_async("held")).unwrap()
        await eventually(lambda: (traces / "held").exists(), 30)
        with WorkerProcess(database_url, "--processes", "1", locator=LOCATOR) as other:
            await worker_of(rows, other)
            kill_all(victim)
            assert (await handle.get_async(timeout_ms=PATIENCE_MS)).unwrap() == 2
            assert other.stop()[0] == 0
    [death, run] = await rows.attempts(handle.task_id)
    assert (death["outcome"], death["will_retry"], run["outcome"]) == ("WORKER_FAILURE", True, "COMPLETED")
    pause = (run["started_at"] - death["finished_at"]).total_seconds()
    assert pause >= LATER_S, "not before the pause of its policy"
