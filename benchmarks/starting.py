"""Starts programs and watches them until they have done what they are for: wall time, CPU, and memory of all their
processes. `make bench ONLY=startup` and `make bench-peers` measure starts with it.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from horsies.dev.program import Program

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 90.0
STOP_S = 20.0
LOOK_S = 0.002
LAST_LINES = 12


class Failed(Exception):
    """A program that did not do what was asked; its last words are in the message."""


class Start(NamedTuple):
    """From the command on: seconds until it was done, and seconds of CPU of all its processes by then."""

    wall_s: float
    cpu_s: float


class Memory(NamedTuple):
    """Megabytes (10^6 bytes). Each shared page is divided among the processes that share it; `anonymous` is the part
    that is in no file, so that no program outside the tree shares it. `private` pages belong to one process alone."""

    pss: float
    anonymous: float
    private: float

    @classmethod
    def read(cls, text: str) -> Memory:
        """From the lines of any number of `smaps_rollup`."""
        fields = [line.split() for line in text.splitlines() if line.endswith(" kB")]
        parts = (("Pss:",), ("Pss_Anon:",), ("Private_Clean:", "Private_Dirty:"))
        return cls(*(sum(int(words[1]) for words in fields if words[0] in names) * 1024 / 1e6 for names in parts))

    def since(self, before: Memory) -> Memory:
        return Memory(*(now - then for now, then in zip(self, before, strict=True)))


class Process(Program):
    """A program whose output is kept for the case that it fails."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], home: Path, directory: Path = ROOT
    ) -> None:
        self.log = Path(tempfile.mkstemp(dir=home, prefix="said-")[1])
        self.started_at = time.time()
        super().__init__(command, output=self.log, env=environment, cwd=directory)

    def must_live(self) -> None:
        if not self.is_running:
            raise Failed(f"a process ended with {self.code}:\n{self.last_lines(LAST_LINES)}")

    def tree(self) -> list[psutil.Process]:
        """It, and all processes below it."""
        root = psutil.Process(self.pid)
        return [root, *root.children(recursive=True)]


def until(holds: Callable[[], object], alive: Sequence[Process], what: str, every: float = 0.01) -> None:
    """Wait for it; fail when a process ends or nothing happens for too long."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        for process in alive:
            process.must_live()
        if time.monotonic() > deadline:
            words = "\n".join(process.last_lines(LAST_LINES) for process in alive)
            raise Failed(f"{what}: not within {PATIENCE_S:.0f} s\n{words}")
        time.sleep(every)


def watched(started: Sequence[Process], is_done: Callable[[], object], what: str) -> Start:
    """Wait until the programs that were just started have done it."""
    until(is_done, started, what, LOOK_S)
    wall_s = time.time() - started[0].started_at
    return Start(wall_s, sum(cpu_s(process) for one in started for process in one.tree()))


def finished(command: Sequence[str], environment: Mapping[str, str], directory: Path) -> tuple[Start, str]:
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
