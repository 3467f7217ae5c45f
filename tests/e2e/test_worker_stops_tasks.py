"""Deaths, time limits and cancellation: exactly one task is hit, and every state says what happened."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from horsies import OperationalErrorCode, OutcomeCode, TaskHandle
from horsies.monitoring import cancel_task
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e

PATIENCE_MS = 30_000


async def send(task: Any, *args: Any, **kwargs: Any) -> TaskHandle[Any]:
    handle: TaskHandle[Any] = (await task.send_async(*args, **kwargs)).unwrap()
    return handle


async def result_of(handle: TaskHandle[Any]) -> Any:
    return await handle.get_async(timeout_ms=PATIENCE_MS)


async def begun(traces: Path, name: str) -> int:
    """Wait until the task of this name runs; the pid it runs in."""

    def first_line() -> int | None:
        path = traces / name
        return int(path.read_text().split()[0]) if path.exists() and path.read_text() else None

    pid = await eventually(first_line, what=f"{name} has begun")
    assert pid is not None
    return pid


# A child dies (W-35)


@pytest.mark.parametrize(
    ("how", "end"), [("kill", "SIGKILL"), ("exit", "exited with code 3"), ("close fds", "exited with code 70")]
)
async def test_w35_a_task_whose_child_dies_fails_at_once(basic: Any, rows: Rows, how: str, end: str) -> None:
    async with running_worker(basic.app) as worker:
        handle = await send(basic.die, how)
        error = (await result_of(handle)).unwrap_err()
        assert error.error_code is OperationalErrorCode.WORKER_CRASHED
        assert (await result_of(await send(basic.add, 1, 1))).unwrap() == 2
    row, (attempt,) = await rows.task(handle.task_id), await rows.attempts(handle.task_id)
    assert (row["status"], row["error_code"]) == ("FAILED", "WORKER_CRASHED")
    assert end in row["failed_reason"] and worker.worker_id in row["failed_reason"]
    assert (attempt["outcome"], attempt["will_retry"], attempt["failed_reason"]) == (
        "WORKER_FAILURE",
        False,
        row["failed_reason"],
    )


async def test_l14_a_crash_is_retried_where_the_policy_lists_it(shared: Any, shared_rows: Rows) -> None:
    handle = await send(shared.die_once, "kill", "once")
    assert (await result_of(handle)).unwrap() == 2
    attempts = await shared_rows.attempts(handle.task_id)
    assert [(a["attempt"], a["outcome"], a["will_retry"]) for a in attempts] == [
        (1, "WORKER_FAILURE", True),
        (2, "COMPLETED", False),
    ]


async def test_w36_the_siblings_of_a_dead_child_notice_nothing(basic: Any, rows: Rows, traces: Path) -> None:
    async with running_worker(basic.app, processes=2):
        calm = await send(basic.nap, 60, "calm")
        pid = await begun(traces, "calm")
        doomed = await send(basic.nap, 60, "doomed")
        os.kill(await begun(traces, "doomed"), signal.SIGKILL)
        assert (await result_of(doomed)).unwrap_err().error_code is OperationalErrorCode.WORKER_CRASHED
        (traces / "calm.go").touch()
        assert (await result_of(calm)).unwrap() == pid
    assert len(await rows.attempts(calm.task_id)) == 1


async def test_w25a_tasks_behind_a_dying_one_go_back_and_run_once(
    shared: Any, shared_rows: Rows, shared_traces: Path
) -> None:
    """Run-ahead: short tasks make the worker hand over many; only the started one counts as crashed."""
    for handle in [await send(shared.noop) for _ in range(50)]:
        await result_of(handle)
    handles = [await send(shared.pid, "behind") for _ in range(30)]
    killer = await send(shared.die, "kill")
    handles += [await send(shared.pid, "behind") for _ in range(30)]
    assert (await result_of(killer)).unwrap_err().error_code is OperationalErrorCode.WORKER_CRASHED
    assert all([(await result_of(handle)).is_ok() for handle in handles])
    assert len((shared_traces / "behind").read_text().splitlines()) == 60
    failures = await shared_rows.all("SELECT task_id FROM horsies_task_attempts WHERE outcome = 'WORKER_FAILURE'")
    assert [row["task_id"] for row in failures] == [killer.task_id]


async def test_w25a_tasks_behind_a_long_one_are_taken_back(basic: Any, rows: Rows, traces: Path) -> None:
    async with running_worker(basic.app, processes=2):
        for handle in [await send(basic.noop) for _ in range(200)]:
            await result_of(handle)
        await rows.all(
            "INSERT INTO horsies_tasks (id, task_name, kwargs, priority)"
            " SELECT 'n' || n, 'noop', '{}', 50 FROM generate_series(1, 60) n"
            " UNION ALL SELECT 'long', 'nap', '{\"seconds\": 60, \"name\": \"long\"}', 40 RETURNING id"
        )
        await begun(traces, "long")

        async def others_done() -> bool:
            left = await rows.all("SELECT id FROM horsies_tasks WHERE status <> 'COMPLETED'")
            return [row["id"] for row in left] == ["long"]

        await eventually(others_done, what="everything but the long task is done")
        assert await rows.status("long") == "RUNNING"
        (traces / "long.go").touch()
        await rows.until("long", "COMPLETED")


# Time limits (T-30)


async def test_t30_a_task_over_its_limit_is_stopped_and_its_child_lives(
    shared: Any, shared_rows: Rows, shared_traces: Path
) -> None:
    pid = (await result_of(await send(shared.pid))).unwrap()
    handle = await send(shared.slow)
    assert (await result_of(handle)).unwrap_err().error_code is OutcomeCode.TASK_TIMEOUT
    assert (await result_of(await send(shared.pid))).unwrap() == pid
    assert "end" not in (shared_traces / "slow").read_text()
    (attempt,) = await shared_rows.attempts(handle.task_id)
    assert (attempt["outcome"], attempt["error_code"]) == ("FAILED", "TASK_TIMEOUT")


async def test_t30_code_that_will_not_stop_is_killed_with_its_child_only(basic: Any, rows: Rows, traces: Path) -> None:
    async with running_worker(basic.app, processes=2):
        calm = await send(basic.nap, 60, "calm")
        await begun(traces, "calm")
        handle = await send(basic.slow, "stubborn", True)
        pid = await begun(traces, "stubborn")
        assert (await result_of(handle)).unwrap_err().error_code is OutcomeCode.TASK_TIMEOUT
        await eventually(lambda: not psutil.pid_exists(pid))
        (traces / "calm.go").touch()
        assert (await result_of(calm)).is_ok()
    assert [a["outcome"] for a in await rows.attempts(handle.task_id)] == ["FAILED"]
    assert len(await rows.attempts(calm.task_id)) == 1


async def test_t30_a_timeout_is_retried_where_the_policy_lists_it(shared: Any, shared_rows: Rows) -> None:
    handle = await send(shared.slow_once, "slow_once")
    assert (await result_of(handle)).unwrap() == 2
    assert [a["error_code"] for a in await shared_rows.attempts(handle.task_id)] == ["TASK_TIMEOUT", None]


@pytest.mark.parametrize("stubborn", [False, True])
async def test_w30a_an_async_task_over_its_limit_is_cancelled(basic: Any, traces: Path, stubborn: bool) -> None:
    async with running_worker(basic.app, concurrency=3):
        pid = (await result_of(await send(basic.anap, 0))).unwrap()
        neighbour = await send(basic.anap, 2, "neighbour")
        await begun(traces, "neighbour")
        handle = await send(basic.aslow, stubborn)
        assert (await result_of(handle)).unwrap_err().error_code is OutcomeCode.TASK_TIMEOUT
        assert (await result_of(neighbour)).unwrap() == pid  # its grace is longer than the neighbour


# Cancellation (M-48)


async def test_l17_a_waiting_task_is_cancelled_and_never_runs(basic: Any, rows: Rows, traces: Path) -> None:
    handle = await send(basic.pid, "cancelled")
    assert (await handle.cancel_async()).is_ok()
    async with running_worker(basic.app):
        assert (await result_of(handle)).unwrap_err().error_code is OutcomeCode.TASK_CANCELLED
        await result_of(await send(basic.add, 1, 1))
    row = await rows.task(handle.task_id)
    assert (row["status"], row["error_code"]) == ("CANCELLED", "TASK_CANCELLED")
    assert not (traces / "cancelled").exists() and await rows.attempts(handle.task_id) == []


async def test_l19_a_running_task_is_cancelled_only_if_asked_and_its_code_stops(
    shared: Any, shared_rows: Rows, shared_traces: Path
) -> None:
    pid = (await result_of(await send(shared.pid))).unwrap()
    handle = await send(shared.nap, 60, "running")
    await begun(shared_traces, "running")
    refused = await cancel_task(shared.app.get_broker(), handle.task_id)
    assert refused.unwrap_err().code == "TASK_NOT_CANCELLABLE" and await shared_rows.status(handle.task_id) == "RUNNING"
    assert (await handle.cancel_async(include_running=True)).is_ok()
    assert (await result_of(handle)).unwrap_err().error_code is OutcomeCode.TASK_CANCELLED
    # Long before the 60 seconds are over the same child serves the next task: the code was really stopped.
    assert (await result_of(await send(shared.pid))).unwrap() == pid
    row = await shared_rows.task(handle.task_id)
    assert (row["status"], row["claimed"]) == ("CANCELLED", False)
    assert await shared_rows.attempts(handle.task_id) == [] and "end" not in (shared_traces / "running").read_text()


async def test_l19_cancelling_one_async_task_leaves_its_neighbours(basic: Any, rows: Rows, traces: Path) -> None:
    async with running_worker(basic.app, concurrency=2):
        doomed, calm = await send(basic.anap, 60, "doomed"), await send(basic.anap, 60, "calm")
        await begun(traces, "doomed")
        await begun(traces, "calm")
        assert (await doomed.cancel_async(include_running=True)).is_ok()
        (traces / "calm.go").touch()
        assert (await result_of(calm)).is_ok()
    assert await rows.status(doomed.task_id) == "CANCELLED"


async def test_l33_the_result_of_a_task_that_was_taken_away_is_dropped(basic: Any, rows: Rows, traces: Path) -> None:
    async with running_worker(basic.app, concurrency=1):
        handle = await send(basic.nap, 0.7, "taken")
        await begun(traces, "taken")
        # Somebody else's recovery, without a word to the owner.
        await rows.all(
            "UPDATE horsies_tasks SET status = 'CANCELLED', claimed = FALSE WHERE id = %s RETURNING id", handle.task_id
        )
        await result_of(await send(basic.add, 1, 1))
    assert await rows.status(handle.task_id) == "CANCELLED" and await rows.attempts(handle.task_id) == []
