"""`make bench`: drain, latency and enqueue on the embedded PostgreSQL (fsync on), with the ceiling beside them.

    TASKS=20000 PROCESSES=2 make bench          DATABASE_URL=postgresql://… to measure another server

Only the ratios taken in one run mean anything: the machine, the disk and the neighbours are part of every figure.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
from rich.console import Console
from rich.table import Table

PROCESSES = int(os.environ.get("PROCESSES", "2"))
TASKS = int(os.environ.get("TASKS", "20000"))
PINGS = int(os.environ.get("PINGS", "300"))
PRODUCERS = int(os.environ.get("PRODUCERS", "16"))
ROOT = Path(__file__).resolve().parent.parent

console = Console()


def main() -> int:
    home = Path(tempfile.mkdtemp(prefix="horsies-bench-"))
    os.environ.setdefault("DATABASE_URL", f"embedded:{home / 'pg'}")
    try:
        rows = run()
    finally:
        from horsies.core import embedded

        if os.environ["DATABASE_URL"].startswith("embedded:"):
            embedded.stop(home / "pg")
        shutil.rmtree(home, ignore_errors=True)
    show(rows)
    return 0


def run() -> list[tuple[str, str, str]]:
    from benchmarks import ceiling
    from benchmarks.app import app, noop

    broker = app.get_broker()
    asyncio.run(broker.ensure_schema_initialized()).unwrap()
    dsn = app.config.broker.dsn()
    rows: list[tuple[str, str, str]] = []

    fill(dsn, TASKS)
    top = asyncio.run(ceiling.drain(app.config.broker))
    rows.append(("ceiling: the same statements in batches of 200, no children", f"{top:,.0f} tasks/s", "1.00"))
    truncate(dsn)

    fill(dsn, TASKS)
    rate = drain_with_worker(dsn, TASKS)
    rows.append((f"drain: {TASKS:,} no-op tasks, {PROCESSES} processes", f"{rate:,.0f} tasks/s", f"{rate / top:.2f}"))
    truncate(dsn)

    one = enqueue(noop, 2000, 1)
    many = enqueue(noop, 4000, PRODUCERS)
    rows.append(("enqueue: send() by 1 thread", f"{one:,.0f} tasks/s", f"{one / top:.2f}"))
    rows.append((f"enqueue: send() by {PRODUCERS} threads", f"{many:,.0f} tasks/s", f"{many / top:.2f}"))
    truncate(dsn)

    rows.extend(latency(dsn, noop))
    asyncio.run(broker.close_async())
    return rows


def fill(dsn: str, count: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "INSERT INTO horsies_tasks (id, task_name, queue_name, kwargs)"
            " SELECT gen_random_uuid()::text, 'noop', 'default', '{\"n\": 1}' FROM generate_series(1, %s)",
            [count],
        )
        conn.execute("VACUUM ANALYZE horsies_tasks")


def truncate(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("TRUNCATE horsies_tasks, horsies_task_attempts, horsies_heartbeats CASCADE")
        conn.execute("CHECKPOINT")


def start_worker() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "horsies.cli.main", "worker", "benchmarks.app:app"]
    options = ["--processes", str(PROCESSES), "--loglevel", os.environ.get("LOGLEVEL", "WARNING")]
    return subprocess.Popen([*command, *options], cwd=ROOT)


def stop_worker(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGTERM)
    worker.wait(30)


def drain_with_worker(dsn: str, count: int) -> float:
    """From the first claim to the last completion, by the database's own clock."""
    worker = start_worker()
    with psycopg.connect(dsn, autocommit=True) as conn:
        while True:
            (left,) = one_row(conn, "SELECT count(*) FROM horsies_tasks WHERE status <> 'COMPLETED'")
            if not left:
                break
            if worker.poll() is not None:
                raise SystemExit(f"the worker ended with {worker.returncode}")
            time.sleep(0.2)
        (seconds,) = one_row(
            conn, "SELECT extract(epoch FROM max(completed_at) - min(claimed_at))::float8 FROM horsies_tasks"
        )
    stop_worker(worker)
    return count / float(str(seconds))


def one_row(conn: psycopg.Connection[tuple[object, ...]], query: str) -> tuple[object, ...]:
    row = conn.execute(query.encode()).fetchone()
    assert row is not None
    return row


def enqueue(task: object, count: int, threads: int) -> float:
    from concurrent.futures import ThreadPoolExecutor

    send = task.send  # type: ignore[attr-defined]
    send(0).unwrap()
    with ThreadPoolExecutor(threads) as pool:
        begin = time.perf_counter()
        for sent in pool.map(lambda n: send(n), range(count)):
            sent.unwrap()
        return count / (time.perf_counter() - begin)


def latency(dsn: str, task: object) -> list[tuple[str, str, str]]:
    """One task at a time on an idle system: send to start, and send to the result in the sender's hands."""
    worker = start_worker()
    send = task.send  # type: ignore[attr-defined]
    send(0).unwrap().get(timeout_ms=30_000)
    round_trips: list[float] = []
    for n in range(PINGS):
        time.sleep(0.005)
        begin = time.perf_counter()
        handle = send(n).unwrap()
        handle.get(timeout_ms=30_000)
        round_trips.append((time.perf_counter() - begin) * 1000)
    with psycopg.connect(dsn, autocommit=True) as conn:
        starts = [
            float(str(row[0]))
            for row in conn.execute(
                "SELECT extract(epoch FROM started_at - created_at)::float8 * 1000 FROM horsies_tasks"
                " WHERE started_at IS NOT NULL ORDER BY created_at DESC LIMIT %s",
                [PINGS],
            )
        ]
    stop_worker(worker)
    return [
        ("latency: send() to start", percentiles(starts), ""),
        ("latency: send() to get()", percentiles(round_trips), ""),
    ]


def percentiles(values: list[float]) -> str:
    cuts = statistics.quantiles(values, n=100)
    return f"p50 {cuts[49]:.1f} ms   p95 {cuts[94]:.1f} ms   p99 {cuts[98]:.1f} ms"


def show(rows: list[tuple[str, str, str]]) -> None:
    table = Table(title=f"horsies on {os.cpu_count()} cores")
    for column in ("what", "figure", "of the ceiling"):
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
