"""What a scheduler of many schedules costs while it checks all of them every second and some, or nearly none, are due:
CPU, its own and PostgreSQL's.
"""

from __future__ import annotations

import os
import sys
import time
from typing import NamedTuple

import psutil

from benchmarks import APP
from benchmarks.bench import Bench
from benchmarks.processes import Process, cpu_s, settings, tree_cpu_s, until
from benchmarks.report import Bar
from benchmarks.server import Server

SCHEDULES = 10_000
WINDOW_S = 30
SETTLE_S = 5.0
PATIENCE_S = 180.0


class Cost(NamedTuple):
    """Of one run."""

    begin_s: float  # from its start until it has seen every schedule
    scheduler: float  # percent of a core
    postgres: float
    memory_mb: float
    sent_per_s: float
    latest_s: float  # how late the latest of the tasks was, by the database's clock

    def __str__(self) -> str:
        return (
            f"{self.scheduler:.1f} % of a core, PostgreSQL {self.postgres:.1f} %, {self.memory_mb:.0f} MB, "
            f"{self.sent_per_s:.0f} tasks/s, all seen after {self.begin_s:.1f} s, late by up to {self.latest_s:.2f} s"
        )


def schedules(bench: Bench) -> None:
    """Nearly none due, then each of them about every 90 s."""
    for are_busy, key, what in (
        (False, "schedules", f"one scheduler of {SCHEDULES:,} schedules, checked every second, nearly none due"),
        (True, "schedules_busy", f"one scheduler of {SCHEDULES:,} schedules, each due about every 90 s"),
    ):
        found: list[Cost] = []
        for _ in bench.times(what, 1):
            found.append(measure(bench.server, SCHEDULES, WINDOW_S, are_busy=are_busy))
        bench.report.add(key, what, "%", [one.scheduler for one in found], Bar(20, "under"), f"{found[-1]}")


def measure(server: Server, count: int, seconds: float, *, are_busy: bool = False) -> Cost:
    """A scheduler of so many schedules, watched for so long."""
    command = [sys.executable, "-m", "horsies", "scheduler", APP, "--loglevel", "WARNING"]
    process = Process(command, {**os.environ, **settings(schedules=count, are_busy=are_busy)}, server.home)
    try:
        until(lambda: server.row(_KNOWN)[0] == count, [process], "all schedules seen", 0.1, PATIENCE_S)
        seen_s = time.time() - process.started_at
        if are_busy:  # all of them within the minute, each at an instant of its own
            server.do("UPDATE horsies_schedule_state SET next_run_at = now() + random() * interval '60 seconds'")
            time.sleep(count / 1_000)  # until it has read all states again
        time.sleep(SETTLE_S)
        return _watched(server, psutil.Process(process.pid), seconds, seen_s)
    finally:
        process.stop(60)
        server.do("DELETE FROM horsies_schedule_state")
        server.clear()


def _watched(server: Server, process: psutil.Process, seconds: float, begin_s: float) -> Cost:
    sent, since = server.row("SELECT count(*), now() FROM horsies_tasks")
    begin, own, postgres = time.monotonic(), cpu_s(process), tree_cpu_s(server.postmaster())
    time.sleep(seconds)
    passed = time.monotonic() - begin
    own, postgres = cpu_s(process) - own, tree_cpu_s(server.postmaster()) - postgres
    sent = server.row("SELECT count(*) FROM horsies_tasks")[0] - sent
    latest = server.row(_LATEST, since)[0]
    memory = process.memory_info().rss / 1e6
    return Cost(begin_s, 100 * own / passed, 100 * postgres / passed, memory, sent / passed, latest)


_KNOWN = "SELECT count(*) FROM horsies_schedule_state"
_LATEST = """
    SELECT coalesce(extract(epoch FROM max(updated_at - last_run_at)), 0)::float8 FROM horsies_schedule_state
    WHERE updated_at > %s
"""
