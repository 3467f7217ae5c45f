"""Workers that have nothing to do: connections, statements, processor time, and the bytes of their snapshots."""

from __future__ import annotations

import time

from benchmarks.figures import Bench
from benchmarks.process import worker
from benchmarks.report import Bar
from benchmarks.scale.crew import crew
from benchmarks.scale.sizes import LOCATOR, queue, settings, with_queues
from benchmarks.scale.watch import until, watching
from benchmarks.server import Server

SETTLE_S = 15.0
WINDOW_S = 30.0
QUEUES = 1_000
SNAPSHOTS = 3
SNAPSHOTS_A_WEEK = 7 * 86_400 // 30
OFTEN = {"worker_state_snapshot_interval_ms": 1_000}


def idle(bench: Bench) -> None:
    window = max(2.0, WINDOW_S * bench.share)
    for _ in bench.times(f"{bench.workers} idle workers", runs=1):
        with crew(bench.server, 0) as workers:
            ours = workers.connections()  # of this program
            workers.grow(bench.workers)
            time.sleep(SETTLE_S * bench.share)
            before, begin = workers.cpu_seconds(), time.monotonic()
            time.sleep(window)
            seconds, after = time.monotonic() - begin, workers.cpu_seconds()
            connections = workers.connections() - ours
            with watching(bench.server) as seen:
                time.sleep(window)
    spent = {part: 100 * (after[part] - before[part]) / seconds for part in before}
    add = bench.report.add
    add("idle_connections", "connections of an idle worker", "", [connections / bench.workers], Bar(3, "at most"))
    each = len(seen.statements) / seen.seconds / bench.workers
    add("idle_statements", "… statements", "/s", [each], Bar(1, "under"))
    note = ", ".join(f"{part} {value:.1f} %" for part, value in spent.items())
    what = f"processor time of {bench.workers} idle workers and PostgreSQL, of one core"
    limit = 4 * bench.workers / 16
    add("idle_cpu", what, "%", [sum(spent.values())], Bar(limit, "under"), note)
    snapshots(bench)


def snapshots(bench: Bench) -> None:
    many = bench.some(QUEUES, 5)
    for _ in bench.times("snapshots of a worker", runs=1):
        one = snapshot_bytes(bench.server, settings(recovery=OFTEN))
        all_of_them = [queue(f"q{n:04}", cap=5) for n in range(many)]
        wide = snapshot_bytes(bench.server, with_queues(all_of_them, recovery=OFTEN))
    add = bench.report.add
    add("snapshot_bytes_1", "a snapshot of a worker with one queue", "bytes", [one], None, _weekly(one))
    add("snapshot_bytes_many", f"… with {many:,} queues", "bytes", [wide], None, _weekly(wide))
    add("snapshot_ratio", "… of the former", "", [wide / one], Bar(1.5, "at most"))


def snapshot_bytes(server: Server, env: dict[str, str]) -> float:
    """The size of a row, of those after the first, which may say more."""
    server.do("TRUNCATE horsies_worker_states")
    with worker(server, app=LOCATOR, env=env):
        until(lambda: bool(server.row("SELECT count(*) FROM horsies_worker_states")[0] >= SNAPSHOTS), "snapshots")
    (size,) = server.row(
        "SELECT avg(pg_column_size(s.*))::float8 FROM horsies_worker_states s"
        " WHERE id > (SELECT min(id) FROM horsies_worker_states)"
    )
    server.clear()
    return float(size)


def _weekly(size: float) -> str:
    return f"{size * SNAPSHOTS_A_WEEK / 1e6:.0f} MB a week"
