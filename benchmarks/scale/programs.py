"""Programs that use the queue as any program would, each in a process of its own.

python -m benchmarks.scale.programs pings COUNT | large BYTES | paused WIDTH | waiters COUNT | many COUNT
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from benchmarks.latency import PATIENCE_MS, PAUSE_S, WARM_UP
from benchmarks.process import ROOT
from benchmarks.report import percentiles
from horsies.dev.program import Program, ready_signal

LONG_MS = 600_000
READY_S = 120.0


def run(name: str, *numbers: int, env: Mapping[str, str] | None = None) -> str:
    """What the program prints."""
    command = [sys.executable, "-m", "benchmarks.scale.programs", name, *map(str, numbers)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"the program {name!r} ended with {done.returncode}")
    return done.stdout


def ping(count: int, env: Mapping[str, str] | None = None) -> float:
    """Milliseconds from `send` to the result seen by `get`, one task at a time: the median."""
    times: list[tuple[int, int]] = json.loads(run("pings", count, env=env))
    return percentiles([(got - sent) / 1e6 for sent, got in times])[50]


@contextmanager
def running(name: str, number: int) -> Iterator[Program]:
    """The program, from when it says that it is ready."""
    command = [sys.executable, "-m", "benchmarks.scale.programs", name, str(number)]
    with Program(command, cwd=ROOT, says_ready=True) as started:
        started.wait_until_ready(READY_S)
        yield started


def pings(count: int) -> None:
    from benchmarks.scale.app import clock

    times: list[tuple[int, int]] = []
    pauses = random.Random(1)
    for n in range(WARM_UP + count):
        time.sleep(pauses.uniform(*PAUSE_S))
        sent = time.time_ns()
        clock.send(n).unwrap().get(timeout_ms=PATIENCE_MS).unwrap()
        times.append((sent, time.time_ns()))
    print(json.dumps(times[WARM_UP:]))


def large(size: int) -> None:
    """One task with so large an argument is sent."""
    from benchmarks.scale.app import large as task
    from benchmarks.scale.sizes import bulk

    task.send(bulk(size)).unwrap()


def many(count: int) -> None:
    from benchmarks.scale.app import noop

    noop.send_many([(n,) for n in range(count)]).unwrap()


def paused(width: int) -> None:
    """A workflow with so many tasks that wait is started and paused."""
    from benchmarks.workflow_graphs import roots

    async def main() -> None:
        [spec] = roots(width).build()
        handle = (await spec.start_async()).unwrap()
        assert (await handle.pause_async()).unwrap()

    asyncio.run(main())


def waiters(count: int) -> None:
    """So many tasks are sent that nobody runs, and each is waited for."""
    from benchmarks.scale.app import noop

    say_ready = ready_signal()

    async def main() -> None:
        handles = (await noop.send_many_async([(n,) for n in range(count)])).unwrap()
        waiting = [asyncio.create_task(handle.get_async(timeout_ms=LONG_MS)) for handle in handles]
        await asyncio.sleep(2)
        say_ready()
        await asyncio.gather(*waiting)

    asyncio.run(main())


PROGRAMS: dict[str, Callable[..., None]] = {
    "pings": pings,
    "large": large,
    "many": many,
    "paused": paused,
    "waiters": waiters,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*map(int, sys.argv[2:]))
