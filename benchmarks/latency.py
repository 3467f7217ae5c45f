"""One task at a time on an idle system: from the call of `send` to the first line of the task, and to its result.

The sender is a process of its own (`python -m benchmarks.latency COUNT`) that uses `send()` and `get()` as any program
would. All three times are of the system's clock, on one machine: before `send`, in the task's first line (which is its
result), after `get`. Random pauses keep the sends from falling into step with anything.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.bench import Bench
from benchmarks.processes import TWO, finished, worker
from benchmarks.report import Bar, percentiles

PINGS, FLUSHES = 300, 700
PAUSE_S = (0.01, 0.04)
WARM_UP = 20
PATIENCE_MS = 30_000
PAGE, SLOTS = bytes(8192), 100


class Latency(NamedTuple):
    """Milliseconds from the call of `send`, of each task."""

    start: list[float]
    result: list[float]


def latency(bench: Bench) -> None:
    found: list[Latency] = []
    for _ in bench.times(f"latency of {PINGS} sends"):
        with worker(bench.server, *TWO):
            found.append(pings(PINGS))
        bench.server.clear()
    for key, what, runs, limit in (
        ("start", "the start of user code", [one.start for one in found], 3),
        ("result", "the result seen by `get`", [one.result for one in found], 4.5),
    ):
        cuts = percentiles([value for run in runs for value in run])
        note = f"p95 {cuts[95]:.1f} ms, p99 {cuts[99]:.1f} ms"
        medians = [percentiles(run)[50] for run in runs]
        bench.report.add(f"latency_{key}", f"idle, `send` to {what}: p50", "ms", medians, Bar(limit, "under"), note)
    for _ in bench.times("bare flushes", 1):
        bare = flushes(bench.server.home, FLUSHES)
    note = f"the longest of {len(bare)}: {max(bare):.0f} ms; a send waits for three of them"
    bench.report.add("flush", "… a bare flush of 8 kB to the same disk: p50", "ms", [percentiles(bare)[50]], None, note)


def pings(count: int) -> Latency:
    """What the sender sees whose workers run already."""
    _, printed = finished([sys.executable, "-m", "benchmarks.latency", str(count)])
    times: list[tuple[int, int, int]] = json.loads(printed)
    return Latency(
        [(started - sent) / 1e6 for sent, started, _ in times],
        [(got - sent) / 1e6 for sent, _, got in times],
    )


def flushes(directory: Path, count: int) -> list[float]:
    """Milliseconds that a bare flush of 8 kB to the disk of this directory takes, with pauses as between the sends."""
    took: list[float] = []
    pauses = random.Random(1)
    with tempfile.TemporaryFile(dir=directory) as file:
        os.pwrite(file.fileno(), bytes(SLOTS * len(PAGE)), 0)
        os.fsync(file.fileno())
        for n in range(count):
            time.sleep(pauses.uniform(*PAUSE_S))
            began = time.perf_counter()
            os.pwrite(file.fileno(), PAGE, n % SLOTS * len(PAGE))
            os.fdatasync(file.fileno())
            took.append(1000 * (time.perf_counter() - began))
    return took


def main(count: int) -> None:
    from benchmarks.app import clock

    times: list[tuple[int, int, int]] = []
    pauses = random.Random(1)
    for n in range(WARM_UP + count):
        time.sleep(pauses.uniform(*PAUSE_S))
        sent = time.time_ns()
        started = clock.send(n).unwrap().get(timeout_ms=PATIENCE_MS).unwrap()
        times.append((sent, started, time.time_ns()))
    print(json.dumps(times[WARM_UP:]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
