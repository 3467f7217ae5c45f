"""A real `horsies worker` in a process of its own, and what it and PostgreSQL cost: processor time and memory."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.server import Server
from horsies.dev.program import Program

ROOT = Path(__file__).resolve().parent.parent
READY_S = STOP_S = 60.0
APP = "benchmarks.app:app"


class Cpu(NamedTuple):
    """Seconds of processor time."""

    supervisor: float
    launcher: float
    children: float
    postgres: float

    def since(self, before: Cpu) -> Cpu:
        return Cpu(*(now - then for now, then in zip(self, before, strict=True)))

    def per(self, count: float) -> dict[str, float]:
        return {name: seconds / count for name, seconds in self._asdict().items()}


class Memory(NamedTuple):
    """Megabytes (10^6 bytes): resident, proportional (shared pages divided among those who share), and private."""

    rss: float
    pss: float
    uss: float


class WorkerProcess:
    """The supervisor, its launcher (the fork server) and the children."""

    def __init__(self, server: Server, program: Program) -> None:
        self._server = server
        self._program = program
        self.supervisor = psutil.Process(program.pid)

    @property
    def worker_id(self) -> str:
        return str(self._server.row("SELECT worker_id FROM horsies_workers WHERE pid = %s", self._program.pid)[0])

    @property
    def launcher(self) -> psutil.Process:
        return next(child for child in self.supervisor.children() if child.name() == "horsies-forks")

    @property
    def children(self) -> list[psutil.Process]:
        return self.launcher.children()

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while not self._server.row("SELECT count(*) FROM horsies_workers WHERE pid = %s", self._program.pid)[0]:
            self.must_live()
            if time.monotonic() > deadline:
                raise SystemExit("the worker does not get ready")
            time.sleep(0.05)

    def must_live(self) -> None:
        if not self._program.is_running:
            raise SystemExit(f"the worker ended with {self._program.code}")

    def cpu(self) -> Cpu:
        children = sum(own_seconds(child) for child in self.children)
        postgres = tree_seconds(self._server.postmaster())
        return Cpu(own_seconds(self.supervisor), own_seconds(self.launcher), children, postgres)

    def memory(self) -> dict[str, Memory]:
        """Of each kind of process; of the children the largest."""
        children = [memory_of(child) for child in self.children]
        return {
            "supervisor": memory_of(self.supervisor),
            "launcher": memory_of(self.launcher),
            "child": max(children),
        }

    def pss_mb(self) -> float:
        """Proportional, of all its processes."""
        return sum(memory_of(process).pss for process in (self.supervisor, self.launcher, *self.children))

    def tell_to_stop(self) -> None:
        self._program.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        self._program.stop(STOP_S)


@contextmanager
def worker(
    server: Server,
    *options: str,
    loglevel: str = "WARNING",
    app: str = APP,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Iterator[WorkerProcess]:
    """A worker of the benchmark's app that is ready, for as long as the block lasts."""
    started = launch(server, *options, loglevel=loglevel, app=app, env=env, log=log)
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.stop()


def launch(
    server: Server,
    *options: str,
    loglevel: str = "WARNING",
    app: str = APP,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> WorkerProcess:
    """A worker that may not be ready yet; what it logs goes into the file, if one is given."""
    command = [sys.executable, "-m", "horsies.cli.main", "worker", app, "--loglevel", loglevel, *options]
    return WorkerProcess(server, Program(command, cwd=ROOT, env={**os.environ, **(env or {})}, output=log))


def own_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def tree_seconds(process: psutil.Process) -> float:
    """Of a process, of those below it that live, and of those below it that have been reaped."""
    times = process.cpu_times()
    reaped = float(getattr(times, "children_user", 0) + getattr(times, "children_system", 0))
    total = own_seconds(process) + reaped
    for child in process.children():
        try:
            total += own_seconds(child)
        except psutil.NoSuchProcess:
            continue
    return total


def peak_mb(process: psutil.Process) -> float:
    """The largest resident size so far, in 10^6 bytes, where the system says so; otherwise that of now."""
    try:
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024 / 1e6
    except (OSError, KeyError):
        return float(process.memory_info().rss / 1e6)


def memory_of(process: psutil.Process) -> Memory:
    found = process.memory_full_info()
    rss, uss = found.rss / 1e6, found.uss / 1e6
    return Memory(rss, getattr(found, "pss", 0) / 1e6, uss)
