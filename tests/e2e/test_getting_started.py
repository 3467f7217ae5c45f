"""docs/getting-started.md, followed to the letter: its commands are typed in their order, what it shows is what they
write, what it says about production names files that exist. Only the ports are others, and the database is that of the
test."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from horsies.dev.new import Template, create
from tests.e2e.cli_support import Started, environment, run
from tests.support import eventually_sync

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/getting-started.md").read_text()
LOCAL, _, PRODUCTION = PAGE.partition("## 7. In production")
SENT = 'horsies send shop.fetch_rate --kwargs \'{"currency": "USD"}\' --wait'


def typed(text: str) -> list[list[str]]:
    """The blocks of commands, each with its lines."""
    found = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [block.splitlines() for block in found]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Newcomer:
    """Types what the page says. Services go on in the background."""

    def __init__(self, directory: Path, database_url: str, services: contextlib.ExitStack) -> None:
        self.directory, self.database_url, self.services = directory, database_url, services
        self.ports = {port: str(free_port()) for port in ("9462", "9464")}
        self.task_id = ""
        self.said: dict[str, str] = {}
        self.dev: Started | None = None
        self.running: list[Started] = []

    def type(self, line: str) -> None:
        program, *words = shlex.split(self._filled_in(line))
        match program, words:
            case "cd", [name]:
                self.directory /= name
            case "horsies", ["dev"]:
                self.dev = self._start("dev", words)
                self.dev.until_it_says(r"dashboard: http://127.0.0.1:\d+")
            case "horsies", ["worker" | "scheduler" as kind, *_]:
                self.stop_dev()
                self.running.append(self._start(kind, words))
            case "horsies", _:
                self._run(line, words)
            case "python", ["-m", "pytest"]:
                subprocess.run([sys.executable, *words], cwd=self.directory, check=True, env=environment())
            case "curl", [*_, url]:
                self.said[line] = asked(url)
            case "touch", [name]:
                (self.directory / name).touch()
            case "rm", [name]:
                (self.directory / name).unlink()
                self._wait_for("status = 'COMPLETED'")
            case _:
                raise AssertionError(f"nobody can type {line!r}")

    def _filled_in(self, line: str) -> str:
        for port, own in self.ports.items():
            line = line.replace(port, own)
        return line.replace("TASK_ID", self.task_id)

    def _start(self, kind: str, words: list[str]) -> Started:
        started = self.services.enter_context(Started(*words, cwd=self.directory, DATABASE_URL=self.database_url))
        started.until_it_says("worker ready" if kind == "dev" else f"{kind} ready")
        return started

    def stop_dev(self) -> None:
        """With Ctrl-C, as the page says."""
        if self.dev is not None:
            assert self.dev.stop(signal.SIGINT) == 0
        self.dev = None

    def _run(self, line: str, words: list[str]) -> None:
        done = run(*words, cwd=self.directory, DATABASE_URL=self.database_url)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        self.said[line] = done.stdout
        if words[0] == "send" and "--wait" not in words:
            self.task_id = done.stdout.strip()
            self._wait_for("retry_count >= 1")

    def wait_for_the_clock(self) -> None:
        """Until the scheduler has sent something: ten seconds after its start, as the page says."""
        self._until("SELECT 1 FROM horsies_schedule_state WHERE schedule_name = 'rates' AND run_count > 0")

    def _wait_for(self, what: str) -> None:
        self._until(f"SELECT 1 FROM horsies_tasks WHERE id = '{self.task_id}' AND {what}")  # noqa: S608

    def _until(self, query: str) -> None:
        with psycopg.connect(self.database_url, autocommit=True) as conn:
            eventually_sync(lambda: conn.execute(query.encode()).fetchone() is not None, what=query, timeout=30)


def asked(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.slow("runs the code of a documentation page")
def test_the_way_from_an_empty_folder_to_a_task_that_is_scheduled_retried_and_watched(
    database_url: str, tmp_path: Path
) -> None:
    with following(tmp_path, database_url) as newcomer:
        for block in installed():
            if all(is_look(line) for line in block):  # nothing changes by them, so they may be typed at once
                with ThreadPoolExecutor(4) as hands:
                    list(hands.map(newcomer.type, block))
            else:
                for line in block:
                    newcomer.type(line)
        assert len(newcomer.running) == 2
        newcomer.wait_for_the_clock()
        check_what_it_said(newcomer)


@pytest.mark.slow("runs the code of a documentation page")
def test_x32_the_first_steps_of_the_page(database_url: str, tmp_path: Path) -> None:
    """The same in short, for every run: the first three steps, without what only looks."""
    lines = [line for block in installed(LOCAL.partition("## 4.")[0]) for line in block if not is_look(line)]
    assert lines[:3] == ["horsies new shop", "cd shop", "horsies dev"] and len(lines) >= 5
    with following(tmp_path, database_url) as newcomer:
        for line in lines:
            newcomer.type(line)
        assert newcomer.said[SENT].strip() == '{"ok":1.08}'
        newcomer.stop_dev()


def installed(page: str = LOCAL) -> list[list[str]]:
    """The blocks after the installation, with which the page begins."""
    blocks = typed(page)
    assert [line.split()[0] for line in blocks[0]] == ["python3", "source", "pip", "horsies", "cd", "horsies"]
    return [blocks[0][3:], *blocks[1:]]


@contextlib.contextmanager
def following(directory: Path, database_url: str) -> Iterator[Newcomer]:
    """Somebody in an empty folder; what he has started ends well."""
    with contextlib.ExitStack() as services:
        newcomer = Newcomer(directory, database_url, services)
        yield newcomer
        assert {service.stop() for service in newcomer.running} <= {0}


def is_look(line: str) -> bool:
    return re.match(r"horsies (tasks|queues|schedules|workers|explain|task) ", line) is not None


def check_what_it_said(newcomer: Newcomer) -> None:
    said = {" ".join(line.split()[1:2]): text for line, text in newcomer.said.items()}
    assert "2 tasks" in said["check"] and "1 schedule" in said["check"]
    assert "shop.fetch_rate" in said["tasks"] and "default" in said["queues"]
    assert "rates" in said["schedules"]
    assert newcomer.said[SENT].strip() == '{"ok":1.08}'
    shown = [text for line, text in newcomer.said.items() if line == "horsies task shop:app TASK_ID"]
    assert "COMPLETED" in shown[-1] and "BANK_CLOSED" in shown[-1]
    assert "# TYPE horsies_" in newcomer.said["curl -s http://127.0.0.1:9464/metrics"]


def test_x32_the_files_of_the_page_are_those_that_horsies_new_writes(tmp_path: Path) -> None:
    shown = dict(re.findall(r"^```python title=\"(.+?)\"\n(.*?)^```$", LOCAL, re.DOTALL | re.MULTILINE))
    create(tmp_path / "shop", Template.MINIMAL)
    assert len(shown) == 2
    assert shown == {name: (tmp_path / "shop" / name).read_text() for name in shown}
