"""What a scheduler of many schedules costs: seconds of processor time each second, its own and PostgreSQL's, while it
checks all of them every second and some, or nearly none, are due.
"""

from __future__ import annotations

import os
import sys
import time
from typing import NamedTuple

import psutil

from benchmarks.process import ROOT, own_seconds, tree_seconds
from benchmarks.server import Server
from horsies.dev.program import Program

PATIENCE_S = 180.0
SETTLE_S = 5.0


class Cost(NamedTuple):
    """Of one run."""

    begin_s: float  # from its start until it has seen every schedule
    scheduler: float  # seconds of processor time each second
    postgres: float
    memory_mb: float
    sent_per_s: float
    latest_s: float  # how late the latest of the tasks was, by the database's clock

    def __str__(self) -> str:
        return (
            f"{100 * self.scheduler:.1f} % of a core, PostgreSQL {100 * self.postgres:.1f} %, {self.memory_mb:.0f} MB, "
            f"{self.sent_per_s:.0f} tasks/s, all seen after {self.begin_s:.1f} s, late by up to {self.latest_s:.2f} s"
        )


def measure(server: Server, count: int, seconds: float, *, is_busy: bool = False) -> Cost:
    """A scheduler of so many schedules, watched for so long."""
    command = [sys.executable, "-m", "horsies", "scheduler", "benchmarks.scheduled:app", "--loglevel", "WARNING"]
    env = {**os.environ, "SCHEDULES": str(count), "BUSY": "1" if is_busy else "0"}
    begun = time.monotonic()
    process = Program(command, cwd=ROOT, env=env)
    try:
        _wait(server, process, count)
        seen = time.monotonic() - begun
        if is_busy:  # all of them within the minute, each at an instant of its own
            server.row(
                "WITH m AS (UPDATE horsies_schedule_state SET next_run_at = now() + random() * interval '60 seconds'"
                " RETURNING 1) SELECT count(*) FROM m"
            )
            time.sleep(count / 1_000)  # until it has read all states again
        time.sleep(SETTLE_S)
        return _watched(server, psutil.Process(process.pid), seconds, seen)
    finally:
        process.stop(60)
        server.row("WITH gone AS (DELETE FROM horsies_schedule_state RETURNING 1) SELECT count(*) FROM gone")
        server.clear()


def _watched(server: Server, process: psutil.Process, seconds: float, begin_s: float) -> Cost:
    sent = server.row("SELECT count(*) FROM horsies_tasks")[0]
    since, own, all_of_it = time.monotonic(), own_seconds(process), tree_seconds(server.postmaster())
    from_then = server.row("SELECT now()")[0]
    time.sleep(seconds)
    passed = time.monotonic() - since
    own, all_of_it = own_seconds(process) - own, tree_seconds(server.postmaster()) - all_of_it
    sent = server.row("SELECT count(*) FROM horsies_tasks")[0] - sent
    late = "SELECT coalesce(extract(epoch FROM max(updated_at - last_run_at)), 0)::float8 FROM horsies_schedule_state"
    latest = server.row(f"{late} WHERE updated_at > %s", from_then)[0]
    memory = process.memory_info().rss / 1e6
    return Cost(begin_s, own / passed, all_of_it / passed, memory, sent / passed, latest)


def _wait(server: Server, process: Program, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while server.row("SELECT count(*) FROM horsies_schedule_state")[0] < count:
        if not process.is_running:
            raise SystemExit(f"the scheduler ended with {process.code}")
        if time.monotonic() > deadline:
            raise SystemExit(f"the scheduler has not seen {count} schedules within {PATIENCE_S:.0f} s")
        time.sleep(0.1)
