"""`horsies dev` as a developer uses it: one command, one log, one Ctrl-C (X-31)."""

from __future__ import annotations

import json
import re
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from horsies.core.embedded import ensure_running
from horsies.core.embedded import stop as stop_server
from horsies.dev.new import Template, create
from tests.e2e.cli_support import Started, run
from tests.e2e.reload_support import Shop, below, pid_of, until_gone
from tests.support import eventually_sync

pytestmark = pytest.mark.e2e

READY = r"(?m)^worker +\| .*worker ready"
DASHBOARD = r"(?m)^web +\| dashboard: http://127.0.0.1:(\d+)"
# A server that leaves processes behind which do not listen to Ctrl-C.
SERVER = """
import os, signal, subprocess, sys, time
stubborn = "import signal, time; signal.signal(2, signal.SIG_IGN); print('stubborn', flush=True); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", stubborn])
print("\\x1b[2Jserving", "DATABASE_URL" in os.environ, flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
FIRST_SCHEDULE = """
from horsies import IntervalSchedule, ScheduleConfig, TaskSchedule
tick = TaskSchedule(name="tick", task_name="shop.version", pattern=IntervalSchedule(seconds=1))
plan = ScheduleConfig(schedules=[tick])
app = Horsies(AppConfig.for_database_url(os.environ["DATABASE_URL"], schedule=plan))
"""


@pytest.fixture
def shop(tmp_path: Path, database_url: str) -> Shop:
    (tmp_path / "shop").mkdir()
    made = Shop(tmp_path / "shop", database_url)
    made.write("server.py", SERVER)
    made.write(
        "pyproject.toml", '[tool.horsies]\napp = "shop:app"\nbefore = ["echo first"]\nrun = ["python server.py"]\n'
    )
    return made


def answer_of(said: str) -> dict[str, Any]:
    """What the dashboard says about itself, asked at the address that was printed last."""
    port = re.findall(DASHBOARD, said)[-1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/meta", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def test_x31_one_command_runs_everything_and_one_ctrl_c_ends_it(shop: Shop) -> None:
    inside = shop.directory / "docs"
    inside.mkdir()
    with Started("dev", "--processes", "1", cwd=inside, DATABASE_URL=shop.url) as dev:
        dev.until_it_says(READY)
        dev.until_it_says(DASHBOARD)
        assert answer_of(dev.said)["actions_enabled"] is True
        assert dev.said.index("echo      | first") < dev.said.index("server.py | "), "it came before"
        assert "server.py | \\u001b[2Jserving True" in dev.said and "\x1b" not in dev.said
        assert "runs the scheduler" not in dev.said

        second = run("dev", cwd=shop.directory, DATABASE_URL=shop.url)
        assert second.returncode == 1 and "already runs in" in second.stderr

        # The first schedule that the app ever had. The dashboard knows it, because it is a new one.
        renewed = len(re.findall(DASHBOARD, dev.said))
        shop.edit('app = Horsies(AppConfig.for_database_url(os.environ["DATABASE_URL"]))', FIRST_SCHEDULE)
        dev.until_it_says("this worker also runs the scheduler")
        eventually_sync(lambda: len(re.findall(DASHBOARD, dev.said)) > renewed, 30)
        sent = "SELECT count(*) > 0 FROM horsies_tasks WHERE status = 'COMPLETED'"
        eventually_sync(lambda: shop.query(sent) == [(True,)], 30, what="the scheduler has sent something")

        family = below(pid_of(dev))
        [server] = [one for one in family if one.cmdline()[-1:] == ["server.py"]]
        server.kill()
        dev.until_it_says(r"dev +\| server.py ended by SIGKILL; it starts again when a file changes")
        shop.edit("return 1", "return 2")
        eventually_sync(lambda: dev.said.count("serving True") == 2, 30)

        # With broken code the dashboard stays.
        shop.edit("return 2", "return (")
        dev.until_it_says("cannot start with this code")
        assert answer_of(dev.said)

        family = below(pid_of(dev))
        assert dev.stop(signal.SIGINT) == 0
        until_gone(family)
        assert "server.py | interrupted" in dev.said
        assert " ended " not in dev.said.rpartition("cannot start")[2]


@pytest.mark.slow("starts all programs of horsies dev again")
def test_x31_after_a_kill_nothing_is_left_the_next_start_finds_the_data_and_a_second_ctrl_c_ends_all_at_once(
    tmp_path: Path,
) -> None:
    """On the embedded server, because the app has no address of its own."""
    (tmp_path / "app").mkdir()
    shop = Shop(tmp_path / "app", "")
    shop.write("server.py", SERVER)
    words = ("dev", "shop:app", "--port", "0", "--processes", "1", "--run", "python server.py")
    try:
        with Started(*words, cwd=shop.directory) as dev:
            dev.until_it_says(READY)
            dev.until_it_says(r"server.py \| stubborn")
            dev.until_it_says(DASHBOARD)
            assert "embedded PostgreSQL in" in dev.said
            family = [one for one in below(pid_of(dev)) if "postgres" not in one.name()]
            assert len(family) >= 6 and any("web" in one.cmdline() for one in family)
            dev.send(signal.SIGKILL)
            dev.wait()
            until_gone(family)
        with Started(*words, cwd=shop.directory) as dev:
            dev.until_it_says(READY)
            shop.url = ensure_running(shop.directory / ".horsies/postgres")
            task = shop.send("shop.wait", "[60]")
            eventually_sync((shop.directory / "begun").exists, 20)
            dev.send(signal.SIGTERM)
            dev.until_it_says("waiting for 1 running task")
            assert shop.status(task) == "RUNNING"
            family = [one for one in below(pid_of(dev)) if "postgres" not in one.name()]
            assert dev.stop(signal.SIGINT) == 1, "the second signal ends everything at once"
            assert "1 running task interrupted" in dev.said and "killed by SIGKILL" not in dev.said
            until_gone(family)
            assert shop.status(task) != "RUNNING"
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            refused = run("dev", "shop:app", "--port", port, cwd=shop.directory)
        assert refused.returncode == 1 and f"cannot listen on 127.0.0.1:{port}" in refused.stderr
    finally:
        stop_server(shop.directory / ".horsies/postgres")


def test_x31_without_an_app_it_says_how_to_name_one(tmp_path: Path) -> None:
    done = run("dev", cwd=tmp_path)
    assert done.returncode == 1
    assert "no app is named" in done.stderr and "HORSIES_APP=shop:app" in done.stderr
    assert 'app = "shop:app" in [tool.horsies] of pyproject.toml' in done.stderr

    create(tmp_path / "my-shop", Template.MINIMAL)
    outside = run("dev", cwd=tmp_path)
    assert outside.returncode == 1 and "cd my-shop" in outside.stderr
