"""`horsies demo` shows what it promises, says no when it is disturbed, and leaves nothing running behind it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from horsies.demo import run as story
from tests.e2e.cli_support import environment, run
from tests.support import eventually_sync

pytestmark = pytest.mark.e2e


def test_the_demo_ends_with_a_table_that_holds(database_url: str, tmp_path: Path) -> None:
    shown = run("demo", cwd=tmp_path, timeout=150, DATABASE_URL=database_url)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "(DATABASE_URL)" in shown.stdout.splitlines()[0]
    lines = [line.strip(" │┃").split("│") for line in shown.stdout.splitlines() if line.startswith("│")]
    assert [line[0].strip() for line in lines] == [check.what for check in story.checks([])]
    assert {line[-1].strip() for line in lines} == {"ok"}
    told = " ".join(shown.stdout.split())
    for word in ("per second", "killed a worker", "killed a child process", "cancelled a running task", "5,000"):
        assert word in told
    assert "\x1b" not in shown.stdout
    assert "To look at them in a browser: " in told and " web (extra web)." in told


@pytest.mark.slow("starts a whole demo with its own server")
def test_a_demo_whose_worker_dies_says_so_and_fails(database_url: str, tmp_path: Path) -> None:
    with a_demo(database_url, tmp_path) as demo:
        _worker_of(demo).kill()
        said, errors = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert "the orders worker of the demo has ended" in errors
    assert "What is in the database" not in said


@pytest.mark.slow("starts a whole demo with its own server")
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_demo_that_is_ended_takes_its_worker_along(database_url: str, tmp_path: Path, sig: signal.Signals) -> None:
    with a_demo(database_url, tmp_path) as demo:
        worker = _worker_of(demo)
        demo.send_signal(sig)
        demo.communicate(timeout=60)
        eventually_sync(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)
    assert demo.returncode == (1 if sig is not signal.SIGKILL else -sig)


@contextmanager
def a_demo(database_url: str, cwd: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "horsies", "demo", *options],
        cwd=cwd,
        env=environment(DATABASE_URL=database_url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _worker_of(demo: subprocess.Popen[str]) -> psutil.Process:
    def worker() -> psutil.Process | None:
        assert demo.poll() is None or demo.communicate() == ("", ""), "the demo ended before it had a worker"
        found = (child for child in psutil.Process(demo.pid).children() if "worker" in child.cmdline())
        return next(found, None)  # the first one is that of the orders

    found = eventually_sync(worker, 60)
    assert found is not None
    return found
