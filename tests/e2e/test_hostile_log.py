"""The text log of a worker and of a scheduler, with rows and exceptions that contain what a terminal would obey."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest

from horsies.cli import main
from tests import hostile_support as hostile
from tests import warm_start
from tests.e2e.cli_support import environment, run
from tests.support import eventually_sync

pytestmark = pytest.mark.e2e

APP = """
import logging
import os
from datetime import time
from horsies import (
    AppConfig, DailySchedule, Horsies, RecoveryConfig, ScheduleConfig, TaskError, TaskResult, TaskSchedule,
)

nightly = TaskSchedule(name="nightly", task_name="quiet", pattern=DailySchedule(time=time(3)))
app = Horsies(
    AppConfig.for_database_url(
        os.environ["SHOP_DATABASE_URL"],
        schedule=ScheduleConfig(schedules=[nightly]),
        recovery=RecoveryConfig(unknown_task_grace_ms=0),
    )
)


@app.task("quiet")
def quiet() -> TaskResult[None, TaskError]:
    return TaskResult(ok=None)


@app.task("raise")
def fail(text: str) -> TaskResult[None, TaskError]:
    logging.getLogger("shop").warning("about to fail: %s", text)
    raise ValueError(text)


@app.task("refuse")
def refuse(text: str) -> TaskResult[None, TaskError]:
    return TaskResult(err=TaskError(error_code=text, message=text))
"""
LINE = re.compile(r"\d\d:\d\d:\d\d (DEBUG|INFO|WARNING|ERROR|CRITICAL) +[\w.]+  ")
SGR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def project(database_url: str, tmp_path: Path) -> Path:
    main.run(["init-db", "--database-url", database_url])
    hostile.plant(database_url)
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


class Log:
    """A command whose log goes into a file, as bytes."""

    def __init__(self, *words: str, cwd: Path, **env: str) -> None:
        self._file = cwd / "log"
        with self._file.open("wb") as log:
            self._process = warm_start.start(
                words, cwd=cwd, env=environment(**env), stdout=log, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    @property
    def text(self) -> str:
        return self._file.read_bytes().decode()

    def until_it_says(self, pattern: str) -> None:
        def found() -> bool:
            assert self._process.poll() is None, self.text
            return re.search(pattern, self.text) is not None

        eventually_sync(found, 60, what=f"{pattern!r} in the log")

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)


def send(database_url: str) -> None:
    """Tasks that fail with hostile texts, one of them without code for its name, under hostile ids."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        for number, name in enumerate(("raise", "refuse", hostile.SHORT)):
            conn.execute(
                "INSERT INTO horsies_tasks (id, task_name, kwargs) VALUES (%s, %s, %s)",
                [f"sent{number}{hostile.SHORT}", name, json.dumps({"text": hostile.LONG})],
            )


@pytest.mark.parametrize("colour", ["", "1"], ids=["plain", "colour"])
def test_m12_a_row_cannot_forge_a_line_of_a_workers_log(project: Path, database_url: str, colour: str) -> None:
    words = ("worker", "shop", "--with-scheduler", "--loglevel", "DEBUG")
    env = {"SHOP_DATABASE_URL": database_url, "HORSIES_FORCE_COLOR": colour}
    with Log(*words, cwd=project, **env) as log:
        send(database_url)
        for number in range(3):
            log.until_it_says(rf"task failed: .*sent{number}\\u001b")
        log.until_it_says(r"schedule .* cannot be used")
        words = ("send", "shop", "refuse", "--kwargs", json.dumps({"text": hostile.LONG}), "--wait")
        told = run(*words, cwd=project, **env)
        assert hostile.obeyed(told.stdout + told.stderr) == set() and hostile.forged(told.stdout) == []
        assert json.loads(told.stdout)["err"]["message"] == hostile.LONG, "it is still the same JSON"
        assert log.stop() == 0
        look_at(log.text)
    assert ("\x1b[" in log.text) is bool(colour)
    assert "    ValueError: \\u001b[8m" in log.text, "a traceback keeps its lines"
    assert re.search(r"shop  about to fail: \\u001b\[8m", log.text)


def test_m12_a_row_cannot_forge_a_line_of_a_schedulers_log(project: Path, database_url: str) -> None:
    with Log("scheduler", "shop", cwd=project, SHOP_DATABASE_URL=database_url) as log:
        log.until_it_says(r"schedule .* cannot be used")
        assert log.stop() == 0
        look_at(log.text)


def look_at(text: str) -> None:
    assert hostile.obeyed(text, allowed="\n\t") == set()
    strange = [line for line in SGR.sub("", text).split("\n") if line and not LINE.match(line) and line[:4] != "    "]
    assert strange == [], text
    assert not re.search(r"(?m)^12:00:00 INFO  worker  FORGED", text)
