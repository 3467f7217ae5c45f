"""`horsies worker` as an operator runs it: its options, what it says, how it stops, and why it did not start."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conftest import with_database
from tests.e2e.cli_support import APP, Started, environment, run
from tests.support import eventually_sync

pytestmark = pytest.mark.e2e

READY = r"worker ready: .*"
SLOW = """

import time


@app.task("shop.slow")
def slow(note: str) -> TaskResult[None, TaskError]:
    open(note, "w").close()
    time.sleep(float(os.environ.get("SLOW_SECONDS", "1")))
    return TaskResult(ok=None)


@app.task("shop.talk")
def talk() -> TaskResult[None, TaskError]:
    import logging
    logging.getLogger("shop").warning("the kettle is on")
    return TaskResult(ok=None)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP + SLOW)
    return tmp_path


def one(url: str, query: str) -> Any:
    with psycopg.connect(url) as conn:
        row = conn.execute(query.encode()).fetchone()
        return row[0] if row is not None and len(row) == 1 else row


def send(project: Path, url: str, task: str, *args: object) -> str:
    sent = run("send", "shop", task, "--args", json.dumps(args), cwd=project, SHOP_DATABASE_URL=url)
    assert sent.returncode == 0, sent.stderr
    return sent.stdout.strip()


def test_w07_it_says_how_it_is_set_up_when_it_is_ready_and_stops_clean_w50(project: Path, database_url: str) -> None:
    with Started("worker", "shop", "--processes", "2", cwd=project, SHOP_DATABASE_URL=database_url) as worker:
        line = worker.until_it_says(READY)
        assert worker.stop(signal.SIGTERM) == 0
    for part in ("processes=2", "cluster_wide_cap=None", "max_claim_per_worker=2", "max_claim_batch=0"):
        assert part in line
    assert "database: " in worker.said
    assert "worker stopped: no task" in worker.said.splitlines()[-1]
    assert "Traceback" not in worker.said
    assert one(database_url, "SELECT count(*) FROM horsies_workers") == 0


def test_w80_m02_every_option_of_the_command_reaches_the_worker(project: Path, database_url: str) -> None:
    options = [
        *("--processes", "1", "--concurrency", "3", "--max-claim-batch", "4", "--max-claim-per-worker", "5"),
        *("--run-ahead-ms", "0", "--max-tasks-per-child", "100", "--max-memory-per-child-mb", "2000"),
        *("--queues", "default", "--worker-recovery", "--heartbeat-interval", "10", "--sweep-interval", "30s"),
        *("--sweep-threshold", "5m", "--recovery-delay", "2h", "--shutdown-grace", "90s", "--loglevel", "debug"),
    ]
    with Started("worker", "shop:app", *options, cwd=project, SHOP_DATABASE_URL=database_url) as worker:
        line = worker.until_it_says(READY)
        snapshot = eventually_sync(
            lambda: one(
                database_url,
                "SELECT processes, max_claim_batch, max_claim_per_worker, queues, recovery_config"
                " FROM horsies_worker_states",
            ),
            what="the first snapshot",
        )
        assert worker.stop() == 0
    assert "concurrency=3" in line and "run_ahead_ms=0" in line
    processes, batch, per_worker, queues, recovery = snapshot
    assert (processes, batch, per_worker, list(queues)) == (1, 4, 5, ["default"])
    settings = recovery["worker_recovery"]
    assert settings["enabled"] is True
    durations = ("heartbeat_interval", "sweep_interval", "sweep_threshold", "recovery_delay")
    assert [settings[name] for name in durations] == [10_000, 30_000, 300_000, 7_200_000]
    assert "horsies configuration:" in worker.said, "the settings of the app are shown to those who debug"


def test_json_logs_are_one_object_per_line_also_those_of_tasks(project: Path, database_url: str) -> None:
    with Started("worker", "shop", "--log-format", "json", cwd=project, SHOP_DATABASE_URL=database_url) as worker:
        worker.until_it_says(READY)
        send(project, database_url, "shop.talk")
        refused = send(project, database_url, "shop.refuse", "no")
        worker.until_it_says("REFUSED")
        worker.until_it_says("kettle")
        assert worker.stop() == 0
    entries = [json.loads(line) for line in worker.said.splitlines()]
    assert all({"time", "level", "logger", "message"} <= entry.keys() for entry in entries)
    [kettle] = [entry for entry in entries if "kettle" in entry["message"]]
    assert kettle["logger"] == "shop"
    [failure] = [entry for entry in entries if entry.get("task_id") == refused]
    facts = {name: failure[name] for name in ("task", "attempt", "queue", "error_code", "level")}
    assert facts == {
        "task": "shop.refuse", "attempt": 1, "queue": "default", "error_code": "REFUSED", "level": "WARNING"
    }  # fmt: skip
    assert failure["worker"]


def test_errors_before_the_start_are_json_too_when_asked_for(project: Path) -> None:
    refused = run("worker", "nothere", "--log-format", "json", cwd=project)
    assert refused.returncode == 1
    [entry] = [json.loads(line) for line in refused.stderr.splitlines()]
    assert entry["error_code"] == "HRS-206"


def test_m12_lines_are_coloured_when_forced(project: Path, database_url: str) -> None:
    forced = {"SHOP_DATABASE_URL": database_url, "HORSIES_FORCE_COLOR": "1", "NO_COLOR": "1"}
    with Started("worker", "shop", cwd=project, **forced) as worker:
        worker.until_it_says(READY)
        assert worker.stop() == 0
    assert "\x1b[32mINFO" in worker.said


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_w50_a_running_task_is_finished_before_the_worker_ends(
    project: Path, database_url: str, tmp_path: Path, sig: signal.Signals
) -> None:
    note = tmp_path / "running"
    with Started("worker", "shop", cwd=project, SHOP_DATABASE_URL=database_url) as worker:
        send(project, database_url, "shop.slow", str(note))
        eventually_sync(note.exists, 30)
        assert worker.stop(sig) == 0
    assert one(database_url, "SELECT status FROM horsies_tasks") == "COMPLETED"


def test_w52_a_second_signal_cuts_off_what_runs_and_the_exit_code_says_so(
    project: Path, database_url: str, tmp_path: Path
) -> None:
    note = tmp_path / "running"
    with Started("worker", "shop", cwd=project, SHOP_DATABASE_URL=database_url, SLOW_SECONDS="600") as worker:
        send(project, database_url, "shop.slow", str(note))
        eventually_sync(note.exists, 30)
        worker.send(signal.SIGINT)
        worker.until_it_says("waiting for 1 running task; press Ctrl-C again .* to interrupt it")
        assert worker.stop(signal.SIGINT) == 1
    assert one(database_url, "SELECT status, error_code FROM horsies_tasks") == ("FAILED", "WORKER_CRASHED")


def test_w52_after_the_grace_tasks_are_cut_off(project: Path, database_url: str, tmp_path: Path) -> None:
    note = tmp_path / "running"
    with Started(
        "worker", "shop", "--shutdown-grace", "0.5", cwd=project, SHOP_DATABASE_URL=database_url, SLOW_SECONDS="600"
    ) as worker:
        send(project, database_url, "shop.slow", str(note))
        eventually_sync(note.exists, 30)
        assert worker.stop(signal.SIGTERM) == 1
    assert one(database_url, "SELECT error_code FROM horsies_tasks") == "WORKER_CRASHED"


def test_another_database_by_its_option(project: Path, database_url: str) -> None:
    with Started("worker", "shop", "--database-url", database_url, cwd=project) as worker:
        worker.until_it_says(READY)
        assert worker.stop() == 0
    assert "(--database-url)" in worker.said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--queues", "nosuch"), "nosuch"),
        (("--max-tasks-per-child", "1"), "at least 2"),
        (("--max-memory-per-child-mb", "1"), "max_memory_per_child_mb"),
        (("--heartbeat-interval", "5m", "--sweep-threshold", "1m"), "at least two heartbeats"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    project: Path, database_url: str, options: tuple[str, ...], words: str
) -> None:
    refused = run("worker", "shop", *options, cwd=project, SHOP_DATABASE_URL=database_url)
    assert refused.returncode == 1
    assert "error[HRS-2" in refused.stderr
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr


def test_m21_an_app_with_mistakes_is_not_served(project: Path, database_url: str) -> None:
    (project / "bad.py").write_text(APP + '\napp.discover_tasks(["broken"])\n')
    (project / "broken.py").write_text("1 / 0\n")
    refused = run("worker", "bad", cwd=project, SHOP_DATABASE_URL=database_url)
    assert refused.returncode == 1
    assert "error[HRS-210]" in refused.stderr
    assert "broken.py:1" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_module_that_fails_on_import_says_where(project: Path) -> None:
    (project / "bad.py").write_text("import os\n\nraise RuntimeError('not today')\n")
    refused = run("worker", "bad", cwd=project)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error[HRS-210]: ")
    assert "not today" in refused.stderr
    assert "bad.py:3" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_w61_a_database_that_is_away_is_waited_for_and_named_without_its_password(project: Path) -> None:
    url = "postgresql://me:topsecret@127.0.0.1:1/none"
    with Started("worker", "shop", cwd=project, SHOP_DATABASE_URL=url) as worker:
        worker.until_it_says("trying again")
        assert worker.stop() == 0
    assert "127.0.0.1" in worker.said
    assert "topsecret" not in worker.said
    assert "Traceback" not in worker.said


def test_w61_a_database_that_does_not_exist_is_waited_for_and_the_advice_is_given_once(
    project: Path, server_url: str
) -> None:
    missing = with_database(server_url, "nowhere")
    with Started("worker", "shop", cwd=project, SHOP_DATABASE_URL=missing) as worker:
        worker.until_it_says(r"(?s)trying again.*trying again.*trying again")
        assert worker.stop() == 0
    assert worker.said.count("createdb nowhere") == 1


def run_script(project: Path, url: str) -> subprocess.CompletedProcess[str]:
    env = environment(SHOP_DATABASE_URL=url)
    command = [sys.executable, "script.py"]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_a_script_without_a_guard_is_told_what_is_missing(project: Path, database_url: str) -> None:
    """As in the quick start, with the last lines at the top level: the children of its worker import it again."""
    last = "\nimport asyncio\nfrom horsies.core.worker.service import Worker\nrefuse.send('x').unwrap()\n"
    (project / "script.py").write_text(APP + last + "print('code', asyncio.run(Worker(app).run_once()))\n")
    done = run_script(project, database_url)
    assert done.stdout == "code 1\n"
    assert "HRS-210" in done.stderr and "SEND_SUPPRESSED" in done.stderr
    assert 'under `if __name__ == "__main__":`' in done.stderr.partition("= help:")[2]


def test_a_failure_says_why_also_where_nobody_has_configured_logging(project: Path, database_url: str) -> None:
    last = """
if __name__ == "__main__":
    import asyncio
    from horsies.core.worker.service import Worker

    print(refuse.send("the shop is closed").unwrap().task_id)
    asyncio.run(Worker(app).run_once())
"""
    (project / "script.py").write_text(APP + last)
    done = run_script(project, database_url)
    assert done.stderr == f"task failed: shop.refuse {done.stdout.strip()}: REFUSED: the shop is closed\n"


def test_a_signal_before_it_is_ready_ends_it_clean(project: Path) -> None:
    (project / "late.py").write_text("import time\nopen('importing', 'w').close()\ntime.sleep(60)\n")
    with Started("worker", "late", cwd=project) as worker:
        eventually_sync((project / "importing").exists, 30)
        assert worker.stop(signal.SIGTERM) == 0
    assert "Traceback" not in worker.said


FACTORY = """
import os
from horsies import AppConfig, Horsies, TaskError, TaskResult


def create_app() -> Horsies:
    app = Horsies(AppConfig.for_database_url(os.environ["SHOP_DATABASE_URL"]))

    @app.task("made.add")
    def add(a: int, b: int) -> TaskResult[int, TaskError]:
        return TaskResult(ok=a + b)

    return app
"""


def test_m01_a_worker_runs_an_app_that_a_function_makes(project: Path, database_url: str) -> None:
    (project / "made.py").write_text(FACTORY)
    with Started("worker", "made:create_app()", cwd=project, SHOP_DATABASE_URL=database_url) as worker:
        worker.until_it_says(READY)
        command = ("send", "made:create_app()", "made.add", "--args", "[1, 2]", "--wait", "--timeout", "30s")
        sent = run(*command, cwd=project, SHOP_DATABASE_URL=database_url)
        assert worker.stop() == 0
    assert json.loads(sent.stdout) == {"ok": 3}, sent.stderr


BLOCKING = """
import asyncio
import threading
import time
from pathlib import Path


@app.task("shop.threads")
def threads() -> TaskResult[list[str], TaskError]:
    return TaskResult(ok=[thread.name for thread in threading.enumerate()])


@app.task("shop.patient")
async def patient(path: str) -> TaskResult[None, TaskError]:
    while not Path(path).exists():
        await asyncio.sleep(0.1)
    return TaskResult(ok=None)


@app.task("shop.blocking")
async def blocking(path: str) -> TaskResult[None, TaskError]:
    while not Path(path).exists():
        time.sleep(0.1)  # the line that is named
    return TaskResult(ok=None)
"""


def test_w30b_async_code_that_blocks_the_loop_is_named_with_its_line(
    project: Path, database_url: str, tmp_path: Path
) -> None:
    (project / "shop.py").write_text(APP + BLOCKING)
    line = next(n for n, text in enumerate((APP + BLOCKING).splitlines(), 1) if "the line that is named" in text)
    end = tmp_path / "end"
    with Started("worker", "shop", "--concurrency", "2", cwd=project, SHOP_DATABASE_URL=database_url) as worker:
        command = ("send", "shop", "shop.threads", "--wait", "--timeout", "30s")
        found = json.loads(run(*command, cwd=project, SHOP_DATABASE_URL=database_url).stdout)["ok"]
        assert "horsies-loop-watch" not in found, "nothing is watched before there is an async task"
        task_id = send(project, database_url, "shop.blocking", str(end))
        said = worker.until_it_says("WARNING.* has blocked the event loop .*", timeout=60)
        end.touch()
        assert worker.stop() == 0
    assert "async task shop.blocking has blocked the event loop" in said and f" at {project}/shop.py:{line} (" in said
    assert "time.sleep(0.1)" in said and f"task_id={task_id}" in said
    assert worker.said.count("has blocked the event loop") == 1


SAYS = """

@app.task("shop.say")
def say() -> TaskResult[int, TaskError]:
    print("hello", flush=True)
    os.system("echo hello")
    return TaskResult(ok=os.write(1, b"hello"))
"""


def test_w41_a_worker_may_be_started_without_standard_streams(tmp_path: Path, database_url: str) -> None:
    """What is written to them must not reach a socket that has got their numbers."""
    (tmp_path / "shop.py").write_text(APP + SAYS)
    command = shlex.join([sys.executable, "-m", "horsies", "worker", "shop:app", "--processes", "1"])
    env = environment(DATABASE_URL=database_url, SHOP_DATABASE_URL=database_url)
    worker = subprocess.Popen(f"exec {command} <&- >&- 2>&-", shell=True, cwd=tmp_path, env=env)
    try:
        sent = run("send", "shop:app", "shop.say", "--wait", cwd=tmp_path, SHOP_DATABASE_URL=database_url)
        assert sent.stdout == '{"ok":5}\n', sent.stderr
        worker.terminate()
        assert worker.wait(30) == 0
    finally:
        worker.kill()
        worker.wait()


def test_m01_a_directory_may_have_any_name(tmp_path: Path, database_url: str) -> None:
    home = tmp_path / os.fsdecode(b"d\xff\xfe")
    home.mkdir()
    (home / "shop.py").write_text(APP)
    assert run("check", "shop.py", cwd=home, SHOP_DATABASE_URL=database_url).returncode == 0
