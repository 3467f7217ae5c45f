"""How long the tasks of a killed worker wait for another worker of the same host, all settings at their defaults.

The worker is killed with its children while it runs two tasks. The time is that of the database, from the kill to the
instant at which each task is FAILED by whoever found it; no policy brings it back, so nothing else is in the figure.
"""

from __future__ import annotations

import random
import time

import psutil

from benchmarks.process import WorkerProcess, worker
from benchmarks.server import Server
from horsies.core.recovery.dead_workers import LOOK_EVERY_S

PATIENCE_S = 60.0
RUNNING = 2


def measure(server: Server) -> list[float]:
    """Seconds until each of the tasks was recovered; one kill."""
    with worker(server, "--processes", str(RUNNING), loglevel="CRITICAL") as victim:
        server.fill("hang", RUNNING)
        server.ring()
        _wait(server, "SELECT count(*) FROM horsies_tasks WHERE status = 'RUNNING'", RUNNING)
        with worker(server, "--processes", "1", loglevel="CRITICAL"):
            time.sleep(random.uniform(0, LOOK_EVERY_S))  # in step with nothing
            killed = server.row("SELECT now()")[0]
            _kill(victim)
            _wait(server, "SELECT count(*) FROM horsies_tasks WHERE status = 'FAILED'", RUNNING)
            query = "SELECT array_agg(extract(epoch FROM failed_at - %s::timestamptz)::float8) FROM horsies_tasks"
            found: list[float] = server.row(query, killed)[0]
    server.clear()
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
