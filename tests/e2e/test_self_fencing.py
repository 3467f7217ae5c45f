"""What a worker does about itself when it may have been away: after a pause, and when others have taken its tasks."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from horsies.core.child.wire import clock
from tests.e2e.conftest import Configured
from tests.fenced_support import LOCATOR, begun, send, stopped, traces_of
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e

HOUR = 3600.0


async def test_r101_after_a_sleep_of_the_machine_nothing_old_runs_on(
    fenced: Configured, rows: Rows, traces: Path
) -> None:
    """The clock that ran meanwhile is the only thing that tells: the database answers, and the child beats."""
    app = fenced(CHECK_MS="600000")
    async with running_worker(app.app, app_locator=LOCATOR) as worker:
        handle = await send(app.tick_once, "slept", 60)
        child = await begun(traces, "slept")
        worker._fence.clock = lambda: clock() + HOUR
        await eventually(lambda: not psutil.pid_exists(child), what="the end of the child")
        worker._fence.clock = clock
        await rows.until(handle.task_id, "COMPLETED", timeout=30)
    assert [a["outcome"] for a in await rows.attempts(handle.task_id)] == ["WORKER_FAILURE", "COMPLETED"]


async def test_r101_a_start_whose_answer_comes_too_late_is_not_let_out(
    fenced: Configured, rows: Rows, traces: Path
) -> None:
    """As after a pause between the statement and its answer: others may have the task by now. It never ran, so it goes
    back without a charge."""
    app = fenced(CHECK_MS="600000")
    async with running_worker(app.app, app_locator=LOCATOR) as worker:
        await (await send(app.where)).get_async(timeout_ms=30_000)
        worker._fence.clock = lambda: clock() + HOUR
        handle = await send(app.tick, "late", 0.1)

        async def came_back() -> bool:
            return bool((await rows.task(handle.task_id))["claim_seq"] >= 3)

        await eventually(came_back, what="it was claimed, started and handed back more than once")
        assert traces_of(traces, "late") == []
        worker._fence.clock = clock
        await rows.until(handle.task_id, "COMPLETED", timeout=30)
    (attempt,) = await rows.attempts(handle.task_id)
    assert (attempt["outcome"], attempt["attempt"]) == ("COMPLETED", 1)


async def test_r11_a_round_asks_also_about_a_claim_that_it_does_not_vouch_for(
    fenced: Configured, rows: Rows, traces: Path
) -> None:
    """The child is stopped, so nobody vouches for it. Somebody takes its task without a word; the code must not go on
    when the child continues, and nothing is written for it."""
    app = fenced(CHECK_MS="600000", RUNNING_MS="60000")
    async with running_worker(app.app, app_locator=LOCATOR):
        handle = await send(app.tick_once, "taken", 60)
        child = await begun(traces, "taken")
        os.kill(child, signal.SIGSTOP)
        await stopped(child)
        await rows.all(
            "UPDATE horsies_tasks SET claimed_by_worker_id = 'somebody', claim_seq = claim_seq + 1"
            " WHERE id = %s RETURNING id",
            handle.task_id,
        )
        await eventually(lambda: not psutil.pid_exists(child), what="the end of the child")
    row = await rows.task(handle.task_id)
    assert (row["status"], row["claimed_by_worker_id"]) == ("RUNNING", "somebody")
    assert await rows.attempts(handle.task_id) == []
