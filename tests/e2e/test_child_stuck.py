"""A child that is alive but stuck, silent and idle: nobody vouches for it. At the threshold its parent kills it, so
that it cannot finish later, and its task is recovered at once (R-12, R-101, W-35)."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import Configured
from tests.fenced_support import LOCATOR, begun, send, stopped, traces_of
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e


SHORTEST = (1_000, 2_000)
BY_DEFAULT = (30_000, 60_000)


@pytest.mark.parametrize(
    ("how", "intervals"),
    [
        ("stopped", SHORTEST),
        ("waiting with the interpreter held", SHORTEST),
        pytest.param("waiting with the interpreter held", BY_DEFAULT, marks=pytest.mark.slow("waits for a minute")),
    ],
)
async def test_r101_a_child_that_nobody_vouches_for_is_killed_at_the_threshold(
    fenced: Configured, rows: Rows, traces: Path, how: str, intervals: tuple[int, int]
) -> None:
    """There is no other worker, and no reaper that could look within the test: its own parent sees to it. Threads that
    wait for the interpreter use the processor a little, and that is no sign of life."""
    beat_ms, threshold_ms = intervals
    app = fenced(CHECK_MS="600000", RUNNER_MS=str(beat_ms), RUNNING_MS=str(threshold_ms))
    async with running_worker(app.app, app_locator=LOCATOR) as worker:
        if how == "stopped":
            handle = await send(app.tick_once, "stuck", 60)
            child = await begun(traces, "stuck")
            os.kill(child, signal.SIGSTOP)
            await stopped(child)
        else:
            handle = await send(app.hold, "stuck", 600)
            child = await begun(traces, "stuck")
        await rows.until(handle.task_id, "COMPLETED", timeout=30 + 3 * threshold_ms / 1000)
    assert not psutil.pid_exists(child)
    lost, won = await rows.attempts(handle.task_id)
    assert (lost["outcome"], lost["error_code"], won["outcome"]) == ("WORKER_FAILURE", "WORKER_CRASHED", "COMPLETED")
    assert lost["worker_id"] == worker.worker_id and "has been silent and idle" in lost["failed_reason"]
    # By the parent's own count, from the sending of the start; the database stored that a moment later.
    found = re.search(r"has been silent and idle for ([\d.]+) s", lost["failed_reason"])
    assert found and float(found[1]) >= threshold_ms / 1000, "not before the threshold"
    after = [trace for trace in traces_of(traces, "stuck") if trace.pid == child]
    assert not any(trace.text == "end" or trace.at > lost["finished_at"].timestamp() for trace in after)


async def test_r101_a_task_that_a_stuck_child_was_handed_goes_back_without_a_charge(
    fenced: Configured, rows: Rows, traces: Path
) -> None:
    """It lies inside the child and may start at any moment, so the child must not live; but nothing has begun, and our
    own kill is no failed start (R-102)."""
    app = fenced(CHECK_MS="600000")
    async with running_worker(app.app, app_locator=LOCATOR, run_ahead_ms=0):
        frozen = (await (await send(app.where)).get_async(timeout_ms=30_000)).unwrap()
        os.kill(frozen, signal.SIGSTOP)
        await stopped(frozen)
        handle = await send(app.where)
        row = await rows.until(handle.task_id, "COMPLETED", timeout=30)
    assert row["worker_pid"] != frozen and (row["start_failures"], row["retry_count"]) == (0, 0)
    assert [a["outcome"] for a in await rows.attempts(handle.task_id)] == ["COMPLETED"]
