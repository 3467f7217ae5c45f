"""Crash tests: real workers that die at each moment, and what they find."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from horsies.testing import InvariantBroken, Moment, MomentNotReached, TaskUnknown, WorkerFailed
from horsies.testing.moments import VARIABLE, Doom
from tests.e2e.page_support import ROOT, imported
from tests.support import eventually_sync
from tests.worker_support import Rows, WorkerProcess

pytestmark = pytest.mark.e2e

EXAMPLE = ROOT / "examples" / "crash_tests" / "payments.py"
FRAGILE = ROOT / "tests" / "apps" / "fragile.py"
# What each moment leaves behind of a task that is not retried after a crash: its status, how its attempts ended, and
# how often its function has run.
ENDS = {
    Moment.CLAIMED: ("COMPLETED", ["COMPLETED"], 1),
    Moment.STARTED: ("COMPLETED", ["COMPLETED"], 1),
    Moment.WORKER_KILLED: ("FAILED", ["WORKER_FAILURE"], 0),
    Moment.CHILD_KILLED: ("FAILED", ["WORKER_FAILURE"], 1),
    Moment.RETURNED: ("FAILED", ["WORKER_FAILURE"], 1),
    Moment.FINALIZING: ("FAILED", ["WORKER_FAILURE"], 1),
    Moment.DATABASE_GONE: ("COMPLETED", ["COMPLETED"], 1),
}
KEPT = {Moment.CHILD_KILLED, Moment.FINALIZING, Moment.DATABASE_GONE}  # one of each kind: child, worker, database
MORE = pytest.mark.slow("another moment of the same story")


@pytest.fixture
def fragile(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("TRACES", str(tmp_path))
    with imported(FRAGILE) as module:
        yield module


@pytest.fixture
def payments(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("DATABASE_URL", database_url)
    with imported(EXAMPLE) as module:
        module.app.get_broker().ensure_schema_initialized_sync()
        module.create_tables()
        yield module


@pytest.mark.parametrize("moment", [one if one in KEPT else pytest.param(one, marks=MORE) for one in Moment])
async def test_x14_a_worker_dies_at_the_moment_and_its_task_is_recovered(
    fragile: Any, database_url: str, moment: Moment
) -> None:
    with fragile.app.testing.crash(fragile.once, at=moment):
        handle = fragile.once.send("it").unwrap()
    rows = Rows(database_url)
    outcomes = [attempt["outcome"] for attempt in await rows.attempts(handle.task_id)]
    assert (await rows.status(handle.task_id), outcomes, fragile.effects("it")) == ENDS[moment]


def test_x14_results_can_be_waited_for_inside_the_block_and_retries_are_not_waited_for(fragile: Any) -> None:
    """The retry of `again` is due after an hour."""
    with fragile.app.testing.crash(fragile.once, at="finalizing"):
        assert fragile.once.send("it").unwrap().get(timeout_ms=60_000).err_value.code == "WORKER_CRASHED"
    with fragile.app.testing.crash(fragile.again, at="returned"):
        handle = fragile.again.send("again").unwrap()
    assert handle.get(timeout_ms=0).is_ok() and fragile.effects("again") == 2


@pytest.mark.parametrize("moment", [pytest.param(Moment.STARTED, marks=MORE), Moment.FINALIZING])
def test_x14_workflows_are_recovered_too(fragile: Any, moment: Moment) -> None:
    with fragile.app.testing.crash(fragile.after, at=moment):
        handle = fragile.line("flow").start().unwrap()
    result = handle.get(timeout_ms=0)
    assert result.is_ok() is (moment is Moment.STARTED)
    assert fragile.effects("flow") == fragile.effects("after flow") == 1


def test_x14_a_moment_that_never_comes_is_said(fragile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horsies.testing.crash.REACH_S", 0.5)
    with (
        pytest.raises(MomentNotReached, match=r"task 'fragile\.again' never came to the moment 'returned'"),
        fragile.app.testing.crash(fragile.again, at="returned"),
    ):
        fragile.once.send("it")
    assert fragile.effects("it") == 1
    with pytest.raises(ValueError, match="no moment 'lunch'; known: 'claimed', 'started'"):
        fragile.app.testing.crash(fragile.once, at="lunch")


def test_x14_the_report_names_the_moments_that_broke_it(payments: Any) -> None:
    """The example's own tests do this for every moment."""
    with pytest.raises(InvariantBroken) as broken:
        payments.app.testing.every_crash(
            lambda: payments.charge_hastily.send(1, 100),
            check=lambda: payments.charged(1) == 100,
            setup=payments.create_tables,
            moments=["claimed", Moment.RETURNED],
        )
    assert broken.value.report.broken == [Moment.RETURNED]
    assert str(broken.value).splitlines() == [
        "the invariant did not hold after a crash at: returned",
        "  claimed: held",
        "  returned: BROKEN",
        "      AssertionError: the check returned False",
    ]


def test_x14_a_scenario_may_be_async_and_its_own_assertions_count(payments: Any) -> None:
    async def scenario() -> None:
        await payments.charge.send_async(1, 100)
        raise AssertionError("the scenario itself")

    with pytest.raises(InvariantBroken, match="the scenario itself"):
        payments.app.testing.every_crash(scenario, moments=["claimed"])


def test_x11_a_worker_of_a_test_ends_with_a_test_that_is_killed(fragile: Any) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(FRAGILE.parent)!r})
from fragile import app
worker = app.testing.worker()
worker.start()
print(worker.pid, flush=True)
sys.stdin.read()
"""
    test = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert test.stdout is not None and test.stdin is not None
    pid = int(test.stdout.readline())
    assert psutil.pid_exists(pid)
    test.kill()
    test.communicate()
    eventually_sync(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_x11_a_worker_that_cannot_start_says_why(fragile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with fragile.app.testing.on_database("postgresql://nobody@localhost:1/none"):
        worker = fragile.app.testing.worker()
        monkeypatch.setattr("horsies.testing.worker_process.READY_S", 8.0)
        with pytest.raises(WorkerFailed, match=r"(?s)the worker of the test .*it said:\n.+"), worker:
            pass
    assert not worker.is_running


def test_x14_nothing_of_this_steers_a_worker_of_production(
    fragile: Any, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary worker does not look at the variable, and it imports nothing of the testing kit."""
    mark = tmp_path / "mark"
    monkeypatch.setenv(VARIABLE, Doom(Moment.RETURNED, None, str(mark), os.getpid()).to_json())
    with WorkerProcess(database_url, locator=f"{FRAGILE}:app") as worker:
        assert fragile.once.send("it").unwrap().get(timeout_ms=30_000).is_ok()
        assert worker.stop()[0] == 0
    assert not mark.exists()
    code = (
        "import sys, horsies.cli.main, horsies.cli.worker, horsies.core.child.main, horsies.core.worker.service\n"
        "print([name for name in sys.modules if name.startswith(('horsies.testing', 'pytest_horsies'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_x14_a_task_that_no_worker_knows_is_said_at_once(fragile: Any) -> None:
    @fragile.app.task("only.here")
    def only_here() -> None: ...

    with pytest.raises(TaskUnknown, match=r"no worker knows the task 'only\.here': put it into a module"):
        fragile.app.testing.every_crash(lambda: only_here.send_or_raise(), moments=[Moment.CLAIMED, Moment.STARTED])


def test_x11_the_log_of_a_worker_has_no_warning_of_pythons_own(fragile: Any) -> None:
    with fragile.app.testing.worker() as worker:
        assert fragile.once.send_or_raise("it").get(30_000).is_ok()
        assert "RuntimeWarning" not in worker.log
