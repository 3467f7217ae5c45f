"""What one server carries: the rate of one worker and of two, and what each task costs it."""

from __future__ import annotations

from benchmarks import drain
from benchmarks.figures import TWO, Bench
from benchmarks.scale.sizes import LOCATOR


def carries(bench: Bench) -> None:
    """A drain, once more than the others: everything else is compared with it."""
    runs: list[drain.Drain] = []
    count = bench.some(bench.tasks, 100)
    for _ in bench.times("drain"):
        runs.append(drain.measure(bench.server, count, *TWO, app=LOCATOR))
        bench.server.clear()
        bench.say(str(runs[-1]))
    add = bench.report.add
    add("drain", f"drain of {count:,} no-op tasks, one worker, `--processes 2`", "tasks/s", [run.rate for run in runs])
    add("wal", "… write-ahead log for each task", "bytes", [run.wal_bytes for run in runs])
    add("cpu_postgres", "… processor time of PostgreSQL for each task", "µs", [run.cpu_us["postgres"] for run in runs])
