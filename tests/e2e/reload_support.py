"""A project in a directory, which tests of the dev loop edit while it runs."""

from __future__ import annotations

from pathlib import Path

import psutil
import psycopg

from tests.e2e.cli_support import Started
from tests.support import eventually_sync

APP = """
import os, time
from pathlib import Path
from horsies import AppConfig, Horsies

app = Horsies(AppConfig.for_database_url(os.environ["DATABASE_URL"]))


@app.task("shop.version")
def version() -> int:
    return 1


@app.task("shop.wait")
def wait(seconds: float) -> str:
    Path("begun").touch()
    deadline = time.monotonic() + seconds
    while not Path("go").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return "waited"
"""

ADDED = """

@app.task("shop.added")
def added() -> str:
    return "new"
"""


class Shop:
    """The project, its database, and what a developer does with them."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        self.write("shop.py", APP)

    def write(self, name: str, text: str) -> None:
        """As many editors do: a new file takes the place of the old one."""
        file = self.directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f".{file.name}.tmp")
        beside.write_text(text)
        beside.replace(file)

    def edit(self, old: str, new: str, name: str = "shop.py") -> None:
        text = (self.directory / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def start(self, *words: str, **env: str) -> Started:
        return Started(*words, cwd=self.directory, DATABASE_URL=self.url, **env)

    def send(self, name: str, args: str = "[]") -> str:
        """From a program that knows none of the code."""
        [(task,)] = self.query("SELECT horsies_send(%s, %s::jsonb)", name, args)
        return str(task)

    def query(self, text: str, *values: object) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as conn:
            return conn.execute(text.encode(), values).fetchall()

    def status(self, task: str) -> str:
        [(status,)] = self.query("SELECT status FROM horsies_tasks WHERE id = %s", task)
        return str(status)

    def until(self, task: str, status: str) -> None:
        eventually_sync(lambda: self.status(task) == status, 30, what=f"{task} is {status}")

    def result(self, task: str) -> str:
        self.until(task, "COMPLETED")
        [(result,)] = self.query("SELECT result FROM horsies_tasks WHERE id = %s", task)
        return str(result)


def below(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def until_gone(processes: list[psutil.Process]) -> None:
    eventually_sync(lambda: not any(runs(one) for one in processes), 20, what="all processes have ended")


def runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pid_of(started: Started) -> int:
    return started._process.pid
