"""`horsies worker --reload` as a developer uses it: real files, real saves, real signals (X-30)."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.e2e.cli_support import Started, environment
from tests.e2e.reload_support import ADDED, APP, Shop, below, pid_of, runs, until_gone
from tests.support import eventually_sync

pytestmark = pytest.mark.e2e

WORKER = ("worker", "shop:app", "--reload", "--processes", "1")
READY = "worker ready"


@pytest.fixture
def shop(tmp_path: Path, database_url: str) -> Shop:
    (tmp_path / "shop").mkdir()
    return Shop(tmp_path / "shop", database_url)


def workers_of(reloader: Started) -> list[psutil.Process]:
    return [one for one in psutil.Process(pid_of(reloader)).children() if runs(one) and "worker" in one.cmdline()]


def times(said: str, words: str) -> int:
    return said.count(words)


def test_x30_a_change_reaches_new_tasks_old_ones_finish_broken_code_fails_nothing_and_a_second_ctrl_c_interrupts(
    shop: Shop,
) -> None:
    with shop.start(*WORKER) as worker:
        worker.until_it_says(READY)
        long = shop.send("shop.wait", "[60]")
        eventually_sync((shop.directory / "begun").exists, 20)

        # Many saves in a row, as by an editor that formats, are one reload.
        for number in range(2, 6):
            shop.edit(f"return {number - 1}", f"return {number}")
        worker.until_it_says(r"(?s)shop.py changed.*worker ready")
        assert json.loads(shop.result(shop.send("shop.version")))["ok"] == 5
        assert shop.status(long) == "RUNNING", "the old worker finishes it with its own code"
        assert times(worker.said, "changed: starting a new worker") == 1

        shop.edit("@app.task", "@app.tsk")
        worker.until_it_says("cannot start with this code")
        assert "module 'shop' failed on import: AttributeError" in worker.said and "shop.py:" in worker.said
        waiting = shop.send("shop.added")
        (shop.directory / "go").touch()
        shop.until(long, "COMPLETED")  # by a worker whose code is no longer in the files
        assert shop.status(waiting) == "PENDING"

        # What mends it brings a task that nobody knew.
        shop.edit("@app.tsk", "@app.task")
        shop.write("shop.py", (shop.directory / "shop.py").read_text() + ADDED)
        assert json.loads(shop.result(waiting))["ok"] == "new"
        assert shop.query("SELECT count(*) FROM horsies_tasks WHERE status = 'FAILED'") == [(0,)]
        assert shop.query("SELECT count(*) FROM horsies_task_attempts") == [(3,)], "each ran once"

        # A worker that is killed comes again, and is replaced like any other.
        [killed] = workers_of(worker)
        killed.kill()
        worker.until_it_says("the worker was killed by SIGKILL: starting it again")
        for name in ("begun", "go"):
            (shop.directory / name).unlink()
        last = shop.send("shop.wait", "[60]")
        eventually_sync((shop.directory / "begun").exists, 20)
        shop.edit("return 5", "return 6")
        eventually_sync(lambda: times(worker.said, "waiting for 1 running task") == 2, 20)

        # The old worker finishes the task for the reload; the first Ctrl-C does not interrupt it, the second one does.
        worker.send(signal.SIGINT)
        eventually_sync(lambda: len(workers_of(worker)) == 1, 20, what="only the old one is left")
        assert shop.status(last) == "RUNNING"
        family = below(pid_of(worker))
        assert worker.stop(signal.SIGINT) == 1
        until_gone(family)
        assert shop.status(last) != "RUNNING"


@pytest.mark.slow("starts workers again and again")
def test_x30_code_that_is_broken_at_the_first_start_is_waited_for_and_nothing_outlives_a_kill(shop: Shop) -> None:
    shop.write("shop.py", "from more.tasks import app\n")
    shop.write("more/__init__.py", "")
    shop.write("more/tasks.py", "def (")
    with shop.start(*WORKER) as worker:
        worker.until_it_says("cannot start with this code")
        assert "SyntaxError" in worker.said
        task = shop.send("shop.version")
        shop.write("more/new/deep.py", "")  # a directory that is new is watched
        eventually_sync(lambda: times(worker.said, "cannot start with this code") == 2, 30)
        shop.write("more/notes.txt", "no code")
        shop.write(".cache/copy.py", "no code of ours")
        shop.write("venv/pyvenv.cfg", "")
        shop.write("venv/lib/module.py", "")
        shop.write("more/tasks.py", APP)
        assert json.loads(shop.result(task))["ok"] == 1
        assert times(worker.said, "changed: starting a new worker") == 2, worker.said
        family = below(pid_of(worker))
        assert len(family) >= 3
        worker.send(signal.SIGKILL)
        worker.wait()
        until_gone(family)


@pytest.mark.slow("starts workers again and again")
def test_x30_a_terminal_that_closes_ends_the_worker_as_ctrl_c_does_and_what_runs_is_finished(shop: Shop) -> None:
    """SIGHUP would kill a program that does not heed it, and the worker with it."""
    with shop.start(*WORKER) as worker:
        worker.until_it_says(READY)
        running = shop.send("shop.wait", "[60]")
        eventually_sync((shop.directory / "begun").exists, 20)
        family = below(pid_of(worker))
        worker.send(signal.SIGHUP)
        worker.until_it_says("waiting for 1 running task")
        (shop.directory / "go").touch()
        assert worker.wait() == 0
        assert shop.status(running) == "COMPLETED"
        until_gone(family)


@pytest.mark.slow("starts workers again and again")
def test_x30_with_a_port_for_metrics_the_new_worker_waits_for_the_old_one(shop: Shop) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with shop.start(*WORKER, "--metrics-port", str(port)) as worker:
        worker.until_it_says(READY)
        long = shop.send("shop.wait", "[60]")
        eventually_sync((shop.directory / "begun").exists, 20)
        shop.edit("return 1", "return 2")
        worker.until_it_says("waiting for 1 running task")
        assert shop.status(long) == "RUNNING" and times(worker.said, READY) == 1
        (shop.directory / "go").touch()
        eventually_sync(lambda: times(worker.said, READY) == 2, 30)
        assert "Address already in use" not in worker.said
        assert worker.stop() == 0


def test_x30_only_the_reloader_imports_watchfiles_and_without_it_it_says_what_to_install(tmp_path: Path) -> None:
    """A module of this name that cannot be found, as if nothing had been installed."""
    code = (
        "import sys, horsies, horsies.cli.main\n"
        "print('watchfiles' in sys.modules, 'horsies.dev.watch' in sys.modules)\n"
        "sys.modules['watchfiles'] = None\n"
        "import importlib.util as u; found = u.find_spec\n"
        "import horsies.cli.reloading as r; r.find_spec = lambda name: None if name == 'watchfiles' else found(name)\n"
        "from horsies.cli.main import run\n"
        "print(run(['worker', 'shop:app', '--reload']), run(['dev', 'shop:app']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=environment())
    assert done.stdout.split() == ["False", "False", "1", "1"], done.stderr
    assert done.stderr.count("this needs the package watchfiles") == 2
    assert done.stderr.count('pip install "horsies-pg[dev]"') == 2
