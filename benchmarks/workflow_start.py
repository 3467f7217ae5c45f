"""A program that builds and starts workflows, and what that costs it: time, and memory at its peak.

Run as `python -m benchmarks.workflow_start SHAPE SIZE` in a process of its own, so that nothing else is in the figures.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AT_ONCE = 16  # starts under way at a time


@dataclass(frozen=True)
class Start:
    """Seconds to build and to start; megabytes (10^6) resident before, and at most until the end."""

    nodes: int
    build_s: float
    start_s: float
    before_mb: float
    peak_mb: float

    def __str__(self) -> str:
        spent = f"built in {self.build_s:.2f} s, started in {self.start_s:.2f} s"
        return f"{self.nodes:,} nodes {spent}, {self.before_mb:.0f} MB before, {self.peak_mb:.0f} MB at the peak"

    @property
    def bytes_for_each(self) -> float:
        """By how much memory grew, for each node."""
        return (self.peak_mb - self.before_mb) * 1e6 / self.nodes


def measure(shape: str, size: int) -> Start:
    """Start it in a process of its own; the workflows are in the database afterwards."""
    command = [sys.executable, "-m", "benchmarks.workflow_start", shape, str(size)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the start of {shape} ended with {done.returncode}")
    return Start(**json.loads(done.stdout))


async def start(shape: str, size: int) -> Start:
    from benchmarks.app import app, noop
    from benchmarks.workflow_graphs import SHAPES, Spec

    graph = SHAPES[shape](size)
    # What every producer has done once: the connections are open, and statements have been prepared.
    (await app.workflow("one", [noop.node()(n=0)], definition_key="bench.one").start_async()).unwrap()
    before = resident()
    began = time.perf_counter()
    specs = graph.build()
    built = time.perf_counter()
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(spec: Spec) -> None:
        async with turn:
            (await spec.start_async()).unwrap()

    await asyncio.gather(*(one(spec) for spec in specs))
    ended = time.perf_counter()
    await app.get_broker().close_async()
    return Start(graph.nodes, built - began, ended - built, before, peak())


def resident() -> float:
    return _status("VmRSS")


def peak() -> float:
    """Of this program; what `getrusage` says includes the one that it was forked from."""
    return _status("VmHWM")


def _status(name: str) -> float:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024 / 1e6


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(start(sys.argv[1], int(sys.argv[2]))))))
