"""The programs that are measured: how they are started and watched, and what they cost: wall time, CPU and memory."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks import APP, APP_SETTINGS, ROOT
from benchmarks.server import Server
from horsies.dev.program import Program

TWO = ("--processes", "2")
PATIENCE_S = 90.0
STOP_S = 60.0
POLL_S = 0.002
LAST_LINES = 12


class Failed(Exception):
    """A measurement that could not be made; the last words of its program are in the message."""


class Start(NamedTuple):
    """From the command on: seconds until it was done, and seconds of CPU of all its processes by then."""

    wall_s: float
    cpu_s: float


class Memory(NamedTuple):
    """Megabytes (10^6 bytes). Each shared page is divided among the processes that share it; `private` pages belong to
    one process alone."""

    pss: float
    private: float

    @classmethod
    def read(cls, text: str) -> Memory:
        """From the lines of any number of `smaps_rollup`."""
        fields = [line.split() for line in text.splitlines() if line.endswith(" kB")]
        parts = (("Pss:",), ("Private_Clean:", "Private_Dirty:"))
        return cls(*(sum(int(words[1]) for words in fields if words[0] in names) * 1024 / 1e6 for names in parts))

    def since(self, before: Memory) -> Memory:
        return Memory(*(now - then for now, then in zip(self, before, strict=True)))


class Process(Program):
    """A program whose output is kept for the case that it fails."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], home: Path, directory: Path = ROOT
    ) -> None:
        descriptor, name = tempfile.mkstemp(dir=home, prefix="printed-")
        os.close(descriptor)
        self.log = Path(name)
        self.started_at = time.time()
        super().__init__(command, output=self.log, env=environment, cwd=directory)

    def must_live(self) -> None:
        if not self.is_running:
            raise Failed(f"a process ended with {self.code}:\n{self.last_lines(LAST_LINES)}")

    def tree(self) -> list[psutil.Process]:
        """It, and all processes below it."""
        root = psutil.Process(self.pid)
        return [root, *root.children(recursive=True)]


class Cpu(NamedTuple):
    """Seconds of CPU: the supervisor, the fork server with the child processes, and PostgreSQL."""

    supervisor: float
    children: float
    postgres: float

    def since(self, before: Cpu) -> Cpu:
        return Cpu(*(now - then for now, then in zip(self, before, strict=True)))

    def per(self, count: float) -> dict[str, float]:
        return {name: seconds / count for name, seconds in self._asdict().items()}


class Worker(Process):
    """A real `horsies worker` of the benchmark's app."""

    def __init__(self, server: Server, *options: str, env: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "horsies", "worker", APP, "--loglevel", "WARNING", *options]
        super().__init__(command, {**os.environ, **(env or {})}, server.home)
        self._server = server

    @property
    def worker_id(self) -> str:
        return str(self._server.row("SELECT worker_id FROM horsies_workers WHERE pid = %s", self.pid)[0])

    @property
    def is_registered(self) -> bool:
        return bool(self._server.row("SELECT count(*) FROM horsies_workers WHERE pid = %s", self.pid)[0])

    def cpu(self) -> Cpu:
        supervisor, *others = self.tree()
        return Cpu(cpu_s(supervisor), sum(map(cpu_s, others)), tree_cpu_s(self._server.postmaster()))


@contextmanager
def workers(server: Server, count: int, *options: str, env: Mapping[str, str] | None = None) -> Iterator[list[Worker]]:
    """They start side by side; all of them are registered when the block begins, and it ends with them."""
    started: list[Worker] = []
    try:
        for _ in range(count):
            started.append(Worker(server, *options, env=env))
        until(lambda: all(one.is_registered for one in started), started, "workers registered", 0.05)
        yield started
    finally:
        for one in started:
            one.send_signal(signal.SIGTERM)
        for one in started:
            one.stop(STOP_S)


@contextmanager
def worker(server: Server, *options: str, env: Mapping[str, str] | None = None) -> Iterator[Worker]:
    with workers(server, 1, *options, env=env) as [one]:
        yield one


def settings(**given: Any) -> dict[str, str]:
    """The environment of a worker or a program whose app has these settings."""
    return {APP_SETTINGS: json.dumps(given)}


def until(
    holds: Callable[[], object],
    alive: Sequence[Process],
    what: str,
    every_s: float = 0.01,
    seconds: float = PATIENCE_S,
    progress: Callable[[], object] = lambda: None,
) -> None:
    """Wait for it. Fail when a process ends, or when nothing (no `progress`) has happened for too long."""
    seen, deadline = progress(), time.monotonic() + seconds
    while not holds():
        for process in alive:
            process.must_live()
        if (now := progress()) != seen:
            seen, deadline = now, time.monotonic() + seconds
        if time.monotonic() > deadline:
            lines = "\n".join(process.last_lines(LAST_LINES) for process in alive)
            raise Failed(f"{what}: nothing has happened for {seconds:.0f} s\n{lines}")
        time.sleep(every_s)


def watched(started: Sequence[Process], is_done: Callable[[], object], what: str) -> Start:
    """Wait until the programs that were just started have done it."""
    until(is_done, started, what, POLL_S)
    wall_s = time.time() - started[0].started_at
    return Start(wall_s, sum(cpu_s(process) for one in started for process in one.tree()))


def finished(
    command: Sequence[str], environment: Mapping[str, str] | None = None, directory: Path = ROOT
) -> tuple[Start, str]:
    """Run a program to its end; what it wrote to standard output is returned too."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    wall_s, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise Failed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Start(wall_s, spent), done.stdout


def cpu_s(process: psutil.Process) -> float:
    """Of all its threads, and of the processes that it started and reaped. On Linux the clock of the process itself is
    read, because the times in /proc are cut to hundredths of a second."""
    times = process.cpu_times()
    own = float(times.user + times.system)
    if sys.platform == "linux":
        own = time.clock_gettime(~process.pid << 3 | 2)  # the number that clock_getcpuclockid(3) returns
    return own + float(getattr(times, "children_user", 0) + getattr(times, "children_system", 0))


def tree_cpu_s(process: psutil.Process) -> float:
    """Of a process and all that are or were below it."""
    total = cpu_s(process)
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess, OSError):  # it ended meanwhile
            total += cpu_s(child)
    return total


def memory(processes: Sequence[psutil.Process]) -> Memory:
    """Of all these processes together. Only Linux tells it."""
    return Memory.read("\n".join(Path(f"/proc/{process.pid}/smaps_rollup").read_text() for process in processes))


def compile_all(python: str, root: Path) -> None:
    """As an installation by pip does it: otherwise, where no byte code is written, each start would compile it anew."""
    folders = [str(root / name) for name in ("horsies", "benchmarks")]
    subprocess.run([python, "-m", "compileall", "-q", *folders], check=True)


def python_of(root: Path) -> Path:
    """The interpreter of a checkout's own environment; that of this program for its own checkout."""
    if root == ROOT:
        return Path(sys.executable)
    found = root / ".venv" / "bin" / "python"
    if not found.exists():
        raise SystemExit(f"{root} has no environment of its own: `make dev` in that directory makes it")
    return found
