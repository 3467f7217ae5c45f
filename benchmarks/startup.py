"""What a start costs: imports, commands, and a worker from its command to its first finished task.

Everything is driven from outside, by commands and by two tables, so that any checkout can be measured (`--of`). The
programs take turns in each run, and one run before the others is not counted: it compiles and fills caches.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import sys
import tempfile
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg

from benchmarks.bench import Bench
from benchmarks.processes import (
    STOP_S,
    Failed,
    Memory,
    Process,
    Start,
    compile_all,
    finished,
    memory,
    python_of,
    until,
    watched,
)
from benchmarks.report import Bar, Report
from benchmarks.server import Server

DATABASE = "startup"
TASKS = 200  # before the memory of a worker is measured
SHOP = """
import os
from horsies import AppConfig, Horsies, TaskError, TaskResult

app = Horsies(AppConfig.for_database_url(os.environ["DATABASE_URL"]))

@app.task("noop")
def noop(n: int) -> TaskResult[None, TaskError]:
    return TaskResult(ok=None)
"""
SEND_MORE = f"from shop import noop; noop.send_many([(n,) for n in range({TASKS})]).unwrap()"
SHOW_MEMORY = "; import os; p = '/proc/self/smaps_rollup'; os.path.exists(p) and print(open(p).read())"
BARE = "pass"
PROGRAMS = {
    "import": ("`import horsies`", "import horsies"),
    "app": ("`from horsies import Horsies`", "from horsies import Horsies"),
    "send": ("a producer: an app with one task, and one send", "from shop import noop; noop.send(1).unwrap()"),
}
HELP = "--help"
CHECK = ("check", "shop:app")
WORKER = ("worker", "shop:app", "--processes", "2")
SEEN = """
    SELECT EXISTS (SELECT FROM horsies_workers),
           (SELECT count(*) FROM horsies_tasks WHERE status = 'COMPLETED')
"""
Values = defaultdict[str, list[float]]


class Checkout:
    """A directory with a version of horsies and its own environment; its app and its database are in `home`."""

    def __init__(self, root: Path, home: Path, server: Server) -> None:
        self.root = root
        self.python = str(python_of(root))
        compile_all(self.python, root)
        self.home = home
        url = urlunsplit(urlsplit(server.url)._replace(path=f"/{DATABASE}"))
        self.environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.environment["DATABASE_URL"] = url
        server.do(f"CREATE DATABASE {DATABASE}")
        (home / "shop.py").write_text(SHOP)
        self._refuse_another_package()
        finished(self.command("init-db", "shop:app"), self.environment, home)
        self.conn: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)

    def _refuse_another_package(self) -> None:
        _, found = self.program("import horsies; print(horsies.__file__)")
        if not Path(found.strip()).resolve().is_relative_to(self.root):
            raise Failed(f"the environment of {self.root} has the horsies of {found.strip()}")

    def command(self, *words: str) -> list[str]:
        return [self.python, "-m", "horsies", *words]

    def program(self, code: str) -> tuple[Start, str]:
        return finished([self.python, "-c", code], self.environment, self.home)

    def clear(self) -> None:
        self.conn.execute("TRUNCATE horsies_tasks, horsies_workers CASCADE")

    def seen(self) -> tuple[bool, int]:
        """Whether there is a worker, and how many tasks are finished."""
        row = self.conn.execute(SEEN).fetchone()
        assert row is not None
        return row[0], row[1]

    @contextmanager
    def started(self, *words: str) -> Iterator[Process]:
        process = Process(self.command(*words), self.environment, self.home, self.home)
        try:
            yield process
        finally:
            process.stop(STOP_S)


def startup(bench: Bench) -> None:
    """What a start costs, of this checkout or another."""
    home = Path(tempfile.mkdtemp(prefix="horsies-startup-"))
    try:
        checkout = Checkout(bench.of, home, bench.server)
        _run(checkout, defaultdict(list), {})
        values: Values = defaultdict(list)
        notes: dict[str, str] = {}
        for _ in bench.times("every start"):
            _run(checkout, values, notes)
        checkout.conn.close()
        add_rows(bench.report, values, notes)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _run(checkout: Checkout, values: Values, notes: dict[str, str]) -> None:
    """Everything once."""
    _programs(checkout, values, notes)
    for key, words in (("help", (HELP,)), ("worker_help", ("worker", HELP)), ("check", CHECK)):
        start, _ = finished(checkout.command(*words), checkout.environment, checkout.home)
        values[key].append(start.wall_s)
        values[f"{key}_cpu"].append(start.cpu_s)
    _worker(checkout, values, notes)
    port = free_port()
    _ready(checkout, values, "web", ("web", "shop:app", "--port", str(port)), lambda: answers(port))
    port = free_port()
    _ready(
        checkout,
        values,
        "dev",
        ("dev", "shop:app", "--port", str(port)),
        lambda: checkout.seen()[0] and answers(port),
    )


def _programs(checkout: Checkout, values: Values, notes: dict[str, str]) -> None:
    bare, shown = checkout.program(BARE + SHOW_MEMORY)
    values["bare"].append(bare.wall_s)
    before = Memory.read(shown)
    for key, (_, code) in PROGRAMS.items():
        checkout.clear()
        start, shown = checkout.program(code + SHOW_MEMORY)
        values[key].append(start.wall_s)
        values[f"{key}_cpu"].append(start.cpu_s)
        if shown:
            added = Memory.read(shown).since(before)
            values[f"{key}_memory"].append(added.pss)
            notes[f"{key}_memory"] = f"proportional; private {added.private:.1f} MB"


def _worker(checkout: Checkout, values: Values, notes: dict[str, str]) -> None:
    """A task waits already. Ready is the moment in which the worker stands in its table."""
    checkout.clear()
    checkout.program(PROGRAMS["send"][1])
    with checkout.started(*WORKER) as process:
        values["ready"].append(watched([process], lambda: checkout.seen()[0], "worker ready").wall_s)
        first = watched([process], lambda: checkout.seen()[1], "first task")
        values["first"].append(first.wall_s)
        values["first_cpu"].append(first.cpu_s)
        checkout.program(SEND_MORE)
        until(lambda: checkout.seen()[1] > TASKS, [process], "more tasks")
        if sys.platform == "linux":
            _memory(process.tree(), values, notes)


def _memory(processes: Sequence[psutil.Process], values: Values, notes: dict[str, str]) -> None:
    whole = memory(processes)
    values["worker_memory"].append(whole.pss)
    each = [f"{memory([process]).pss:.0f}" for process in processes]
    notes["worker_memory"] = f"supervisor {each[0]}, fork server {each[1]}, child processes {' and '.join(each[2:])} MB"


def _ready(
    checkout: Checkout, values: Values, key: str, words: tuple[str, ...], is_ready: Callable[[], object]
) -> None:
    checkout.clear()
    with checkout.started(*words) as process:
        start = watched([process], is_ready, f"horsies {key} ready")
    values[key].append(start.wall_s)
    values[f"{key}_cpu"].append(start.cpu_s)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def add_rows(report: Report, values: Values, notes: dict[str, str]) -> None:
    def add(key: str, what: str, unit: str, bar: Bar | None = None, note: str = "") -> None:
        factor = 1000 if unit == "ms" else 1
        found = [factor * value for value in values.get(key, ())]
        if found:
            report.add(f"startup_{key}", what, unit, found, bar, note)

    bare = 1000 * statistics.median(values["bare"])
    for key, (what, _) in PROGRAMS.items():
        add(key, f"{what}: wall time", "ms", None, f"the interpreter alone {bare:.0f} ms")
        add(f"{key}_cpu", "… CPU", "ms")
        bar = Bar(30, "at most") if key != "send" else None
        add(f"{key}_memory", "… memory that it adds to the interpreter", "MB", bar, notes.get(f"{key}_memory", ""))
    add("help", "`horsies --help`: wall time", "s", Bar(0.25, "at most"))
    add("worker_help", "`horsies worker --help`: wall time", "s")
    add("check", "`horsies check`: wall time", "s")
    add("check_cpu", "… CPU", "s")
    add(
        "first", "`horsies worker --processes 2`, from the command to its first finished task", "s", Bar(0.7, "at most")
    )
    add("first_cpu", "… CPU of all its processes by then", "s", Bar(0.6, "under"))
    add("ready", "… until it is registered", "s")
    what = f"memory of its processes after {TASKS} tasks, each shared page divided among those who share it"
    add("worker_memory", what, "MB", Bar(80, "at most"), notes.get("worker_memory", ""))
    for key, what in (("web", "`horsies web`, until it answers"), ("dev", "`horsies dev`, worker and dashboard ready")):
        add(key, f"{what}: wall time", "s")
        add(f"{key}_cpu", "… CPU of all its processes by then", "s")
