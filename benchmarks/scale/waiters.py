"""Ten thousand callers of `get` in one process, for tasks that do not end."""

from __future__ import annotations

import time

import psutil

from benchmarks.figures import Bench
from benchmarks.process import own_seconds, tree_seconds
from benchmarks.report import Bar
from benchmarks.scale import programs
from benchmarks.scale.watch import watching

WAITERS = 10_000
SETTLE_S = 5.0
WINDOW_S = 20.0
COUNTED_S = 5.0
MOST = 3


def waiters(bench: Bench) -> None:
    count = bench.some(WAITERS, 50)
    for _ in bench.times(f"{count:,} waiters", runs=1):
        with programs.running("waiters", count) as started:
            program, postmaster = psutil.Process(started.pid), bench.server.postmaster()
            time.sleep(SETTLE_S * bench.share)
            mine, theirs, begin = own_seconds(program), tree_seconds(postmaster), time.monotonic()
            time.sleep(max(1.0, WINDOW_S * bench.share))
            seconds = time.monotonic() - begin
            mine, theirs = own_seconds(program) - mine, tree_seconds(postmaster) - theirs
            with watching(bench.server) as seen:
                time.sleep(max(1.0, COUNTED_S * bench.share))
        bench.server.clear()
    parts = {"the program": 100 * mine / seconds, "postgres": 100 * theirs / seconds}
    note = ", ".join(f"{part} {value:.1f} %" for part, value in parts.items())
    what = f"processor time of {count:,} waiters in one process and of PostgreSQL, of one core"
    bench.report.add("waiters", what, "%", [sum(parts.values())], Bar(MOST, "under"), note)
    bench.report.add("waiters_statements", "… statements", "/s", [len(seen.statements) / seen.seconds])
