"""Bytes: what a supervisor holds when tasks or their results are large, and what large results cost."""

from __future__ import annotations

import time
from typing import NamedTuple

import psutil

from benchmarks import drain
from benchmarks.figures import Bench
from benchmarks.process import own_seconds, peak_mb, worker
from benchmarks.report import Bar
from benchmarks.scale import programs
from benchmarks.scale.sizes import LOCATOR, MEGABYTE, bulk
from benchmarks.server import Server

TINY, LARGE, RESULTS = 12_000, 1_500, 1_000
EIGHT = ("--processes", "8")
LEAD_S = 8.0
MOST_MB = 250
RAW = 40


class Held(NamedTuple):
    """One run: the peak of the supervisor in MB, the most large tasks that were claimed at once, and the rate."""

    peak: float
    at_once: int
    rate: float
    postgres_ms: float

    def __str__(self) -> str:
        return f"{self.peak:.0f} MB at the peak, {self.at_once} claimed at once, {self.rate:,.0f} tasks/s"


def payloads(bench: Bench) -> None:
    """Small tasks, which teach the worker to run ahead, and then large ones."""
    tiny, many = bench.some(TINY, 20), bench.some(LARGE, 5)
    for _ in bench.times(f"{many:,} tasks of 1 MB", runs=1):
        programs.run("large", MEGABYTE)
        bench.server.keep_sample("large")
        found = measure(bench.server, tiny, "large", many)
        bench.say(str(found))
    what = f"peak of the supervisor: {tiny:,} tiny tasks, then {many:,} of 1 MB, `--processes 8`"
    bench.report.add("bytes_args", what, "MB", [found.peak], Bar(MOST_MB, "under"))
    bench.report.add("bytes_args_claimed", "… large tasks claimed at once, most", "", [found.at_once])
    bench.report.add("bytes_args_rate", "… rate of the large ones", "tasks/s", [found.rate])
    results(bench)


def results(bench: Bench) -> None:
    count = bench.some(RESULTS, 5)
    for _ in bench.times(f"{count:,} results of 1 MB", runs=1):
        found = measure(bench.server, bench.some(TINY, 20), "bulky", count)
        raw_ms = raw(bench.server)
        bench.say(f"{found}, PostgreSQL {found.postgres_ms:.1f} ms each, {raw_ms:.1f} ms raw with pglz")
    add = bench.report.add
    add(
        "bytes_results", f"peak of the supervisor: {count:,} results of 1 MB", "MB", [found.peak], Bar(MOST_MB, "under")
    )
    add("bytes_results_rate", "… rate", "tasks/s", [found.rate])
    add("bytes_results_cpu", "… processor time of PostgreSQL for each", "ms", [found.postgres_ms])
    has_lz4 = bool(bench.server.row(_HAS_LZ4)[0])
    note = f"raw {raw_ms:.1f} ms; " + (
        "with lz4" if has_lz4 else "this server was built without lz4, so there is no bar"
    )
    what = "… of what a raw insert of the same text takes with pglz"
    bar = Bar(0.75, "under") if has_lz4 else None
    add("bytes_results_ratio", what, "", [found.postgres_ms / raw_ms], bar, note)


def measure(server: Server, tiny: int, task: str, count: int) -> Held:
    """Of `count` tasks behind `tiny` small ones, all due when the worker is idle. The tables are empty afterwards."""
    due = server.fill_ahead("noop", tiny, LEAD_S)
    server.fill(
        task if task == "large" else "noop",
        count,
        task_name=f"'{task}'",
        enqueued_at=f"to_timestamp({due!r}) + interval '1 ms'",
    )
    server.settle()
    before, at_once = drain.attempts(server), 0
    with worker(server, *EIGHT, app=LOCATOR) as running:
        drain.sleep_until(due)
        server.ring()
        while drain.attempts(server) < before + tiny:
            running.must_live()
            time.sleep(0.02)
        spent, begun, done = running.cpu(), time.monotonic(), drain.attempts(server)
        while (ended := drain.attempts(server)) < before + tiny + count:
            at_once = max(at_once, int(server.row(_HELD, task)[0]))
            running.must_live()
            time.sleep(0.05)
        drain.wait(server, running, before + tiny + count)
        seconds, left = time.monotonic() - begun, max(1, before + tiny + count - done)
        used = running.cpu().since(spent)
        peak = peak_mb(running.supervisor)
    server.clear()
    assert ended >= done
    return Held(peak, at_once, left / seconds, used.postgres / left * 1000)


def raw(server: Server) -> float:
    """Milliseconds of processor time to write one text of 1 MB into a table that compresses with pglz."""
    server.do("CREATE TEMP TABLE IF NOT EXISTS bench_texts (n int, body text COMPRESSION pglz)")
    backend, text = psutil.Process(server.backend), bulk()
    begin = own_seconds(backend)
    for n in range(RAW):
        server.do("INSERT INTO bench_texts VALUES (%s, %s)", n, text)
    spent = own_seconds(backend) - begin
    server.do("DROP TABLE bench_texts")
    return max(spent, 0.01) / RAW * 1000


_HAS_LZ4 = """
    SELECT EXISTS (SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals))
"""
_HELD = "SELECT count(*) FROM horsies_tasks WHERE claimed AND task_name = %s"
