"""Hooks that return each of the four results, raise, hang or return nonsense, asked by real workers about the tasks of
one that was killed (R-72 to R-76), and told of those that a forced shutdown has cut off (R-73, W-52).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from horsies import TaskHandle, TaskStatus
from horsies.core.worker.service import Worker
from tests.e2e.conftest import configurable
from tests.factories import given_task
from tests.support import eventually
from tests.worker_support import ROOT, Rows, WorkerProcess, make_worker, running_worker

pytestmark = pytest.mark.e2e

PATH = ROOT / "tests" / "apps" / "recovering.py"
APP = f"{PATH}:app"
RECOVERED = "Job recovered after worker interruption"
HANDLED = ["default", "none", "reschedule", "backoff", "backoff without policy"]
SKIPPED = ["skip", "raise", "exit", "hang", "nonsense"]


@pytest.fixture
async def recovering(database_url: str, traces: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    async with configurable(PATH, database_url, monkeypatch) as configured:
        yield configured()


def noted(traces: Path, name: str) -> list[dict[str, Any]]:
    path = traces / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def send(task: Any, hook: str) -> TaskHandle[Any]:
    handle: TaskHandle[Any] = (await task.send_async(hook)).unwrap()
    return handle


async def held(traces: Path, count: int) -> None:
    path = traces / "held"
    await eventually(lambda: path.exists() and len(path.read_text().splitlines()) == count, what="all tasks run")


async def test_r72_r73_r74_r75_the_tasks_of_a_killed_worker_are_handled_as_the_hooks_say(
    recovering: Any, rows: Rows, traces: Path, database_url: str
) -> None:
    ids: dict[str, str] = {}
    with WorkerProcess(database_url, "--processes=1", "--concurrency=20", locator=APP) as doomed:
        for hook in [*HANDLED, *SKIPPED]:
            task = recovering.hold_and_retry if hook in ("backoff", "reschedule") else recovering.hold
            ids[hook] = (await send(task, hook.removesuffix(" without policy"))).task_id
        await held(traces, len(ids))
        (before,) = await rows.all("SELECT * FROM horsies_workers")
        doomed.process.kill()
    worker = impatient(recovering.app)
    async with serving(worker):
        await eventually(
            lambda: {line["id"] for line in noted(traces, "interrupted")} == {ids[hook] for hook in HANDLED}, 30
        )
        found = {hook: await rows.task(task_id) for hook, task_id in ids.items()}
        attempts = {hook: await rows.attempts(task_id) for hook, task_id in ids.items()}
        # None of the broken hooks disturbs the worker's own work.
        sum_of = (await recovering.add.send_async(20, 22)).unwrap()
        assert (await sum_of.get_async(timeout_ms=20_000)).unwrap() == 42
        (traces / "forgiven").touch()
        for hook in SKIPPED:  # offered again in a later sweep, and now the answer is another
            again = await rows.until(ids[hook], "PENDING", timeout=30)
            assert again["enqueued_at"].year == 2036
        dead = before["worker_id"]
        await eventually(lambda: sum(line["jobs"] for line in noted(traces, "recovered")) == len(ids))

    for hook in ("default", "none"):
        assert (found[hook]["status"], found[hook]["failed_reason"]) == ("PENDING", RECOVERED)
        assert (found[hook]["retry_count"], found[hook]["claimed"]) == (0, False)
    later = found["reschedule"]
    assert (later["status"], later["enqueued_at"].isoformat()) == ("PENDING", "2036-05-04T03:02:01+00:00")
    assert later["retry_count"] == 2
    retried, failed = found["backoff"], found["backoff without policy"]
    assert (retried["status"], retried["retry_count"], retried["next_retry_at"] is None) == ("PENDING", 1, False)
    assert (failed["status"], failed["error_code"]) == ("FAILED", "WORKER_CRASHED")
    for hook in HANDLED:
        assert [(a["outcome"], a["will_retry"]) for a in attempts[hook]] == [
            ("WORKER_FAILURE", hook != "backoff without policy")
        ]
    for hook in SKIPPED:
        assert (found[hook]["status"], found[hook]["claimed_by_worker_id"]) == ("RUNNING", dead), hook
        assert attempts[hook] == []

    questions = noted(traces, "asked")
    assert {(q["by"], q["of"], q["reason"], q["tries"]) for q in questions} == {
        (worker.worker_id, dead, "WORKER_CRASHED", 1)
    }
    interruptions = noted(traces, "interrupted")
    assert sorted(line["id"] for line in interruptions) == sorted(ids.values())  # each once, in the end
    assert {(line["of"], line["reason"]) for line in interruptions} == {(dead, "WORKER_CRASHED")}
    assert all(line["dead"] == [dead] and line["by"] == worker.worker_id for line in noted(traces, "recovered"))
    assert os.getpid() not in {line["pid"] for line in (*questions, *interruptions)}


def impatient(app: Any) -> Worker:
    """A worker whose hooks have half a second each."""
    worker = make_worker(app, app_locator=APP)
    spec = replace(worker.plan.child_spec, recovery_hook_timeout_ms=500)
    worker.plan = replace(worker.plan, child_spec=spec)
    return worker


class serving:
    """Run this worker, and see it end well."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def __aenter__(self) -> None:
        self._running = asyncio.create_task(self._worker.run())

    async def __aexit__(self, *_: object) -> None:
        self._worker.request_stop()
        assert await asyncio.wait_for(self._running, 20) == 0


async def test_w01_a_hanging_hook_holds_up_nothing_and_ends_with_its_supervisor(
    recovering: Any, rows: Rows, traces: Path, database_url: str, db: Any
) -> None:
    await given_task(
        db, status=TaskStatus.RUNNING, task_name="hold", args='["hang"]', recovery_enrolled=True,
        claimed_at="2026-01-01", started_at="2026-01-01",
    )  # fmt: skip
    with WorkerProcess(database_url, "--processes=1", locator=APP) as worker:
        (question,) = await eventually(lambda: noted(traces, "asked"))
        helper = psutil.Process(question["pid"])
        handle = (await recovering.add.send_async(1, 2)).unwrap()
        assert (await handle.get_async(timeout_ms=20_000)).unwrap() == 3
        assert helper.is_running() and worker.process.poll() is None
        assert helper.ppid() != worker.process.pid  # a child of the fork server, like all others
        worker.process.kill()
        await eventually(lambda: not helper.is_running() or helper.status() == psutil.STATUS_ZOMBIE)


async def test_w01_without_handlers_there_is_no_helper(basic: Any, rows: Rows, db: Any) -> None:
    task_id = await given_task(
        db, status=TaskStatus.RUNNING, task_name="noop", recovery_enrolled=True,
        claimed_at="2026-01-01", started_at="2026-01-01",
    )  # fmt: skip
    async with running_worker(basic.app, sweep_interval=1, recovery_delay=3_600):
        await rows.until(task_id, "PENDING", "FAILED")
        names = [process.name() for process in psutil.Process().children(recursive=True)]
        assert any(name.startswith("horsies-child") for name in names)
        assert not any(name.startswith("horsies-helper") for name in names)


async def test_r73_w52_hooks_hear_of_tasks_that_a_forced_shutdown_cut_off(
    recovering: Any, rows: Rows, traces: Path, database_url: str
) -> None:
    options = ("--concurrency=2", "--shutdown-grace=1")
    with WorkerProcess(database_url, *options, locator=APP) as worker:
        handle = await send(recovering.hold, "default")
        await held(traces, 1)
        (row,) = await rows.all("SELECT * FROM horsies_workers")
        code, output = await asyncio.to_thread(worker.stop)
    assert code == 1, output
    [line] = noted(traces, "interrupted")
    assert (line["id"], line["of"], line["reason"]) == (handle.task_id, row["worker_id"], "SHUTDOWN")
    assert noted(traces, "asked") == []  # there is nothing to decide: the worker itself knows what to do (W-52)
    assert (await rows.task(handle.task_id))["status"] == "PENDING"
