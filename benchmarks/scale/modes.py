"""The modes of notifications side by side: few and many workers, and few and many who send."""

from __future__ import annotations

import time
from typing import NamedTuple

from benchmarks import drain
from benchmarks.figures import Bench
from benchmarks.process import tree_seconds
from benchmarks.scale import programs
from benchmarks.scale.crew import Crew, crew
from benchmarks.scale.sizes import settings
from benchmarks.scale.watch import until

MODES = ("always", "when_waiting")
SIZES = (1, 8, 16)
PINGS = 60
SENT = 4_000
SETTLE_S = 3.0


class Found(NamedTuple):
    """The median from `send` to the result in ms; then, of tasks that are sent and worked off at the same time: tasks
    per second, and microseconds of PostgreSQL for each."""

    result: float
    rate: float
    postgres: float

    def __str__(self) -> str:
        return f"{self.result:.1f} ms to the result, {self.rate:,.0f} tasks/s, PostgreSQL {self.postgres:.0f} µs a task"


def modes(bench: Bench) -> None:
    """So many workers, and as many who send at the same time."""
    found: dict[tuple[str, int], Found] = {}
    sizes = sorted({min(size, bench.workers) for size in SIZES})
    for mode in MODES:
        env = settings(notify=mode)
        for _ in bench.times(f"notifications {mode}", runs=1):
            with crew(bench.server, 0) as workers:
                for size in sizes:
                    workers.grow(size, env=env)
                    found[mode, size] = measure(bench, workers, size, env)
                    bench.say(f"{mode}, {_crowd(size)}: {found[mode, size]}")
    with crew(bench.server, 1, env=settings(notify=MODES[0])):
        pass  # a worker records its mode: the first one is that of all other parts
    for size in sizes:
        first, second = (found[mode, size] for mode in MODES)
        add = bench.report.add
        what = f"`{MODES[1]}` of `{MODES[0]}`, {_crowd(size)}: `send` to the result, p50"
        add(f"modes_p50_{size}", what, "", [second.result / first.result], None,
            f"{first.result:.1f} and {second.result:.1f} ms")  # fmt: skip
        add(f"modes_rate_{size}", "… tasks/s, sent and worked off", "", [second.rate / first.rate], None,
            f"{first.rate:,.0f} and {second.rate:,.0f}")  # fmt: skip
        add(f"modes_postgres_{size}", "… processor time of PostgreSQL for each", "", [second.postgres / first.postgres],
            None, f"{first.postgres:.0f} and {second.postgres:.0f} µs")  # fmt: skip


def measure(bench: Bench, workers: Crew, size: int, env: dict[str, str]) -> Found:
    server, count = bench.server, bench.some(SENT, 10 * size) // size * size
    time.sleep(SETTLE_S)
    result = programs.ping(bench.some(PINGS, 5), env)
    before, spent = drain.attempts(server), tree_seconds(server.postmaster())
    begun = float(programs.run("senders", size, count, env=env))
    until(lambda: drain.attempts(server) >= before + count, "the tasks of many senders", every_s=0.02)
    seconds, used = time.time() - begun, tree_seconds(server.postmaster()) - spent
    server.clear()
    return Found(result, count / seconds, used / count * 1e6)


def _crowd(size: int) -> str:
    return "1 worker and sender" if size == 1 else f"{size} workers and senders"
