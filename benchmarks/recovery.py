"""How long the tasks of a killed worker wait for another worker of the same host, all settings at their defaults.

The worker is killed with its children while it runs two tasks. The time is that of the database, from the kill to the
instant at which each task is FAILED by whoever found it; no policy brings it back, so nothing else is in the figure.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress

import psutil

from benchmarks.bench import Bench
from benchmarks.processes import TWO, until, worker
from benchmarks.report import Bar, percentiles
from benchmarks.server import Server

KILLS = 7
RUNNING = 2
SLEEPS_S = 3.0  # after its start a worker looks a few times by itself
CHECK_EVERY_S = 2.0  # so often a worker looks for dead ones


def recovery(bench: Bench) -> None:
    found: list[float] = []
    for _ in bench.times("a worker is killed", rounds=KILLS):
        found += measure(bench.server)
        bench.say(f"{max(found[-RUNNING:]):.2f} s")
    of = percentiles(found)
    note = f"{len(found)} tasks; p50 {of[50]:.2f} s, longest {max(found):.2f} s"
    what = "worker killed with its children, from the kill to the recovery of its tasks by another: p95"
    bench.report.add("recovery", what, "s", [of[95]], Bar(5, "under"), note)


def measure(server: Server) -> list[float]:
    """Seconds until each of the tasks was recovered; one kill."""
    with worker(server, *TWO) as victim:
        server.fill("hang", RUNNING)
        server.ring()
        until(lambda: _count(server, "RUNNING") == RUNNING, [victim], "tasks that run", 0.02)
        with worker(server, *TWO) as other:
            time.sleep(SLEEPS_S + random.uniform(0, CHECK_EVERY_S))  # in step with nothing
            (killed,) = server.row("SELECT now()")
            for process in victim.tree():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            until(lambda: _count(server, "FAILED") == RUNNING, [other], "recovered tasks", 0.02)
    seconds: list[float] = server.row(_SINCE, killed)[0]
    server.clear()
    return seconds


def _count(server: Server, status: str) -> int:
    return int(server.row("SELECT count(*) FROM horsies_tasks WHERE status = %s", status)[0])


_SINCE = "SELECT array_agg(extract(epoch FROM failed_at - %s::timestamptz)::float8) FROM horsies_tasks"
