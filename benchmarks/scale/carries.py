"""What one server carries: the rate of one worker, and what each task costs the server."""

from __future__ import annotations

from benchmarks import drain
from benchmarks.figures import TWO, Bench
from benchmarks.scale.sizes import LOCATOR
from benchmarks.server import Server

LEAD_S = 6.0


def carries(bench: Bench) -> None:
    """A drain like that of the performance page, for the page about scale."""
    runs: list[drain.Drain] = []
    count = bench.some(bench.tasks, 100)
    for _ in bench.times("drain"):
        runs.append(drain.measure(bench.server, count, *TWO, lead_s=LEAD_S, app=LOCATOR))
        bench.server.clear()
        bench.say(str(runs[-1]))
    add = bench.report.add
    add("drain", f"drain of {count:,} no-op tasks, one worker, `--processes 2`", "tasks/s", [run.rate for run in runs])
    add("wal", "… write-ahead log for each task", "bytes", [run.wal_bytes for run in runs])
    with_attempts = finished_bytes(bench.server, count)
    add("rows_bytes", "disk for an ended task and its attempt, indexes included", "bytes", [with_attempts])
    add("cpu_postgres", "… processor time of PostgreSQL for each task", "µs", [run.cpu_us["postgres"] for run in runs])


def finished_bytes(server: Server, count: int) -> float:
    """Of fresh rows: what updates leave behind is used again."""
    server.fill_finished(count)
    server.settle()
    (size,) = server.row(
        "SELECT pg_total_relation_size('horsies_tasks') + pg_total_relation_size('horsies_task_attempts')"
    )
    server.clear()
    return float(size / count)
