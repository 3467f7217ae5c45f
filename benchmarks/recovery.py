"""How long the tasks of a killed worker wait for another worker of the same host, all settings at their defaults.

The worker is killed with its children while it runs two tasks. The time is that of the database, from the kill to the
instant at which each task is FAILED by whoever found it; no policy brings it back, so nothing else is in the figure.
Or it is the time to the instant at which each task runs again, with a policy, on a worker that sleeps and rarely polls.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import psutil

from benchmarks.process import WorkerProcess, worker
from benchmarks.server import Server
from horsies.core.recovery.dead_workers import LOOK_EVERY_S

PATIENCE_S = 60.0
RUNNING = 2
POLL_S = 30
SLEEPS_S = 3.0  # after its start a worker looks a few times by itself


def measure(server: Server) -> list[float]:
    """Seconds until each of the tasks was recovered; one kill."""
    with _killed(server, "hang") as (killed, _):
        _wait(server, "SELECT count(*) FROM horsies_tasks WHERE status = 'FAILED'", RUNNING)
        found = _since(server, killed)
    server.clear()
    return found


def measure_again(server: Server) -> list[float]:
    """Seconds until each of the tasks ran again, after the pause of its policy; the other worker polls rarely."""
    os.environ["POLL_MS"] = str(1000 * POLL_S)
    try:
        with _killed(server, "hang_again") as (killed, other):
            _wait(server, "SELECT count(*) FROM horsies_tasks WHERE status = 'RUNNING' AND retry_count = 1", RUNNING)
            found = _since(server, killed)
            _kill(other)  # it would wait for them
    finally:
        del os.environ["POLL_MS"]
    server.clear()
    return found


@contextmanager
def _killed(server: Server, task: str) -> Iterator[tuple[datetime, WorkerProcess]]:
    """When a worker that ran some of these tasks was killed, and the other worker."""
    with worker(server, "--processes", str(RUNNING), loglevel="CRITICAL") as victim:
        server.fill(task, RUNNING)
        server.ring()
        _wait(server, "SELECT count(*) FROM horsies_tasks WHERE status = 'RUNNING'", RUNNING)
        with worker(server, "--processes", str(RUNNING), loglevel="CRITICAL") as other:
            time.sleep(SLEEPS_S + random.uniform(0, LOOK_EVERY_S))  # in step with nothing
            killed = server.row("SELECT now()")[0]
            _kill(victim)
            yield killed, other


def _since(server: Server, killed: datetime) -> list[float]:
    """Seconds from the kill to the end of each task, or to the start of its new run."""
    found: list[float] = server.row(_SINCE, killed)[0]
    return found


def _kill(victim: WorkerProcess) -> None:
    everybody = [victim.supervisor, victim.launcher, *victim.children]
    for process in everybody:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def _wait(server: Server, query: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while server.row(query)[0] < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"not seen within {PATIENCE_S:.0f} s: {query}")
        time.sleep(0.02)


_SINCE = """
    SELECT array_agg(extract(epoch FROM COALESCE(failed_at, started_at) - %s::timestamptz)::float8) FROM horsies_tasks
"""
