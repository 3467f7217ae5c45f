"""Looking at a large table: commands, queries, a scrape and a claim, at 10^3 rows and at many more."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.ceiling import claim_order, claimant
from benchmarks.figures import Bench
from benchmarks.process import ROOT
from benchmarks.report import Bar
from benchmarks.server import FINISHED, Server
from horsies import monitoring
from horsies.core.db.connections import BY_INDEX, connect
from horsies.core.models.broker import PostgresConfig
from horsies.core.store import tasks

FIRST = 1_000
QUICK_S = 1.0
CLAIMS = 20
APP = "benchmarks.app:app"
# Shares of a table that has seen better days: much is done, much waits, much failed, much is for later.
FAILED = {
    **FINISHED,
    "status": "'FAILED'",
    "completed_at": "NULL",
    "failed_at": "now() - nth * interval '0.6 seconds'",
    "error_code": "'SOME_ERROR'",
    "retry_count": "nth %% 3",
}
LATER = {"enqueued_at": "now() + interval '1 day' + nth * interval '1 second'"}
MIX: tuple[tuple[float, dict[str, str]], ...] = ((0.5, FINISHED), (0.15, FAILED), (0.2, {}), (0.15, LATER))
COMMANDS: dict[str, list[str]] = {
    "queues": ["queues", APP, "--json"],
    "tasks": ["tasks", APP, "--json"],
    "tasks --status FAILED": ["tasks", APP, "--status", "FAILED", "--json"],
    "metrics --once": ["metrics", APP, "--once"],
}
QUEUE_METRIC = 'queue="default"'
Query = Callable[[Any], Awaitable[Any]]
QUERIES: dict[str, Query] = {
    "list": lambda broker: monitoring.list_tasks(broker),
    "list by sent_at": lambda broker: monitoring.list_tasks(broker, sort_by="sent_at"),
    "list PENDING": lambda broker: monitoring.list_tasks(broker, statuses=["PENDING"]),
    "list FAILED": lambda broker: monitoring.list_tasks(broker, statuses=["FAILED"]),
    "list by error code": lambda broker: monitoring.list_tasks(broker, error_codes=["SOME_ERROR"]),
    "list by a rare name": lambda broker: monitoring.list_tasks(broker, task_names=["rare"]),
    "list of a queue": lambda broker: monitoring.list_tasks(broker, queues=["default"]),
    "list retried": lambda broker: monitoring.list_tasks(broker, retried_only=True),
    "stats": lambda broker: monitoring.task_stats(broker),
    "facets": lambda broker: monitoring.task_facets(broker),
    "breakdown": lambda broker: monitoring.task_breakdown(broker, group_by="queue"),
    "snapshot": lambda broker: monitoring.take_snapshot(broker),
}


def looks(bench: Bench) -> None:
    start: dict[str, float] = {}
    there = 0
    claim_ms: list[float] = []
    for rows in (FIRST, bench.rows):
        for _ in bench.times(f"looks at {rows:,} rows", runs=1):
            fill(bench.server, rows - there)
            there = rows
            claim_ms.append(asyncio.run(claims(PostgresConfig(database_url=bench.server.url))))
            asked = {name: ask(query) for name, query in QUERIES.items()}
            told = {name: command(args) for name, args in COMMANDS.items()}
            start = start or {name: seconds for name, (seconds, _) in told.items()}
        listed = ", ".join(f"{name} {_told(*found)}" for name, found in asked.items())
        bench.say(f"claim {claim_ms[-1]:.2f} ms; {listed}")
    _report(bench, claim_ms, asked, told, start)
    bench.server.clear()


def fill(server: Server, more: int) -> None:
    for share, instead in MIX:
        server.fill("noop", round(more * share), **instead)
    server.settle()


async def claims(config: PostgresConfig) -> float:
    """Milliseconds of one claim of ten tasks, which is undone each time: the median."""
    times: list[float] = []
    async with await connect(config, name="claim", options=BY_INDEX) as conn:
        for _ in range(CLAIMS):
            async with conn.transaction(force_rollback=True):
                begin = time.perf_counter()
                await tasks.claim(conn, claimant(), claim_order(10))
                times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1000


def ask(query: Query) -> tuple[float, str]:
    """Seconds, and what went wrong."""
    from benchmarks.app import app

    async def asked() -> Any:
        return await query(app.get_broker())

    begin = time.perf_counter()
    answer = asyncio.run(asked())
    seconds = time.perf_counter() - begin
    return seconds, "" if answer.is_ok() else str(answer.error.code)


def command(args: list[str]) -> tuple[float, str]:
    """Seconds of a real command, its start included, and what went wrong."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "horsies.cli.main", *args], cwd=ROOT, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begin
    if done.returncode:
        return seconds, f"exit {done.returncode}"
    if args[0] == "metrics" and QUEUE_METRIC not in done.stdout:
        return seconds, "no metrics of queues"
    return seconds, ""


def _report(
    bench: Bench,
    claim_ms: list[float],
    asked: dict[str, tuple[float, str]],
    told: dict[str, tuple[float, str]],
    start: dict[str, float],
) -> None:
    add, bar = bench.report.add, Bar(QUICK_S, "under")
    what = f"claim of ten tasks with {bench.rows:,} rows, of that with {FIRST:,}"
    add("looks_claim", what, "", [claim_ms[-1] / claim_ms[0]], None, f"{claim_ms[-1]:.2f} ms")
    for name, (seconds, problem) in asked.items():
        add(f"looks_{_key(name)}", f"query of {bench.rows:,} rows: {name}", "s", [seconds], bar, problem)
    for name, (seconds, problem) in told.items():
        what = f"`horsies {name}` with {bench.rows:,} rows, longer than with {FIRST:,}"
        add(f"looks_command_{_key(name)}", what, "s", [max(0.0, seconds - start[name])], bar, problem)
    broken = sum(1 for _, problem in [*asked.values(), *told.values()] if problem)
    add("looks_broken", "… queries, commands and scrapes without a full answer", "", [broken], Bar(0, "at most"))


def _told(seconds: float, problem: str) -> str:
    return f"{seconds:.2f} s" + (f" ({problem})" if problem else "")


def _key(name: str) -> str:
    return name.replace("--", "").replace(" ", "_").lower()
