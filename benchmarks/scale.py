"""How cost grows with workers, and with what a database has seen: `make bench ONLY=scale`, for docs/scale.md."""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import timedelta
from typing import NamedTuple

from benchmarks.bench import Bench
from benchmarks.drain import attempts, drained, measure
from benchmarks.latency import WARM_UP, pings
from benchmarks.processes import TWO, Failed, cpu_s, settings, tree_cpu_s, until, worker, workers
from benchmarks.profile import counting
from benchmarks.report import Bar, percentiles
from benchmarks.server import LATER, Server
from horsies.core.db.connections import BY_INDEX, connect
from horsies.core.models.broker import PostgresConfig
from horsies.core.store import tasks
from horsies.core.store.tasks import Claimant, ClaimOrder

SETTLE_S, WINDOW_S = 15.0, 30.0
PINGS = 100
FULL_LEAD_S = 8.0  # vacuum and analyze have more to read
FEW, CLAIMS = 1_000, 20
OLD, NEW = 200_000, 40_000
LONG_AGO = "now() - interval '60 days' + nth * interval '1 second'"
OFTEN = {"check_interval_ms": 1_000}  # the first pass of retention begins after this time


class Fleet(NamedTuple):
    """So many idle workers, and a send to them."""

    connections: float  # of each
    statements: float  # of each, per second
    workers_cpu: float  # of all of them, in percent of a core
    postgres_cpu: float
    claims: float  # for each send
    result_ms: float  # from the send to the result: the median


def fleet(bench: Bench) -> None:
    """The idle workers come first: what other parts leave to the server (vacuum, checkpoints) would be counted as
    theirs."""
    found: dict[int, Fleet] = {}
    for size in (1, bench.workers):
        for _ in bench.times(f"{size} idle workers", runs=1):
            found[size] = measure_fleet(bench, size)
            bench.say(str(found[size]))
    one, all_of_them, size = found[1], found[bench.workers], bench.workers
    add = bench.report.add
    add("idle_connections", "connections of an idle worker", "", [all_of_them.connections], Bar(3, "at most"))
    add("idle_statements", "… statements", "/s", [all_of_them.statements], Bar(1, "under"))
    what = f"processor time of {size} idle workers and PostgreSQL, of one core"
    spent = all_of_them.workers_cpu + all_of_them.postgres_cpu
    note = f"workers {all_of_them.workers_cpu:.1f} %, postgres {all_of_them.postgres_cpu:.1f} %"
    add("idle_cpu", what, "%", [spent], Bar(4 * size / 16, "under"), note)
    what, note = f"claims for each send to {size} idle workers, of that to one", f"{all_of_them.claims:.1f} claims"
    add("fleet_claims", what, "", [all_of_them.claims / one.claims], Bar(1.5, "at most"), note)
    what, note = "… `send` to the result: p50, of that of one", f"{all_of_them.result_ms:.1f} ms"
    add("fleet_result", what, "", [all_of_them.result_ms / one.result_ms], Bar(1.5, "at most"), note)


def measure_fleet(bench: Bench, size: int) -> Fleet:
    server, window = bench.server, max(2.0, WINDOW_S * bench.share)
    count = bench.some(PINGS, 5)
    ours = _connections(server)
    with workers(server, size) as running:
        time.sleep(SETTLE_S * bench.share)
        processes = [process for one in running for process in one.tree()]
        connections = _connections(server) - ours
        cpu, postgres, begin = sum(map(cpu_s, processes)), tree_cpu_s(server.postmaster()), time.monotonic()
        with counting(server) as idle:
            time.sleep(window)
        passed = time.monotonic() - begin
        cpu, postgres = sum(map(cpu_s, processes)) - cpu, tree_cpu_s(server.postmaster()) - postgres
        with counting(server) as sent:
            latency = pings(count)
    server.clear()
    return Fleet(
        connections / size,
        idle.calls / passed / size,
        100 * cpu / passed,
        100 * postgres / passed,
        sent.claims / (count + WARM_UP),
        percentiles(latency.result)[50],
    )


def _connections(server: Server) -> int:
    return int(server.row("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")[0])


def history(bench: Bench) -> None:
    """The drain in a table with many finished and future tasks; before and after it in an empty one."""
    empty = [drained(bench, bench.tasks, *TWO).rate for _ in bench.times("drain of an otherwise empty table")]
    for _ in bench.times(f"filling the table with {2 * bench.rows:,} tasks", runs=1):
        bench.server.fill_finished(bench.rows)
        bench.server.fill("noop", bench.rows, **LATER)
    rates: list[float] = []
    for _ in bench.times("drain of the full table"):
        rates.append(measure(bench.server, bench.tasks, *TWO, lead_s=FULL_LEAD_S).rate)
        bench.say(f"{rates[-1]:,.0f} tasks/s")
    bench.server.clear()
    empty += [drained(bench, bench.tasks, *TWO).rate for _ in bench.times("drain of the table, empty again")]
    usual, add = statistics.median(empty), bench.report.add
    what = f"drain with {bench.rows:,} finished and as many future tasks in the table, of the empty table"
    add("history", what, "", [rate / usual for rate in rates], Bar(0.7), f"{statistics.median(rates):,.0f} tasks/s")


def backlog(bench: Bench) -> None:
    """A claim, while few and while many tasks wait, and what a task takes on the disk."""
    claim_ms: list[float] = []
    for rows, more in ((FEW, FEW), (bench.rows, bench.rows - FEW)):
        for _ in bench.times(f"claims while {rows:,} tasks wait", runs=1):
            bench.server.fill("noop", more)
            bench.server.settle()
            claim_ms.append(asyncio.run(_claim_ms(PostgresConfig(database_url=bench.server.url))))
    bench.server.clear()
    what = f"claim of ten tasks while {bench.rows:,} wait, of that while {FEW:,} wait"
    bench.report.add("backlog", what, "", [claim_ms[1] / claim_ms[0]], None, f"{claim_ms[1]:.2f} ms")
    bench.server.fill_finished(bench.tasks)  # fresh rows: what updates leave behind is used again
    bench.server.settle()
    (size,) = bench.server.row(_DISK)
    bench.server.clear()
    what = "disk for an ended task and its attempt, indexes included"
    bench.report.add("disk", what, "bytes", [float(size / bench.tasks)])


async def _claim_ms(config: PostgresConfig) -> float:
    """Milliseconds of one claim of ten tasks, which is undone each time: the median."""
    who = Claimant("claim", timedelta(minutes=1), enrolled=False)
    order = ClaimOrder(["default"], [10], [None], 10, 10, None, True, [])
    times: list[float] = []
    async with await connect(config, name="claim", options=BY_INDEX) as conn:
        for _ in range(CLAIMS):
            async with conn.transaction(force_rollback=True):
                begin = time.perf_counter()
                await tasks.claim(conn, who, order)
                times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1000


def retention(bench: Bench) -> None:
    """Can old tasks be deleted as fast as new ones are done, by the same worker at the same time?"""
    old, new = bench.some(OLD, 1_000), bench.some(NEW, 200)
    for _ in bench.times(f"{old:,} old tasks are deleted beside a drain of {new:,}", runs=1):
        deleted, done = _deleted_and_done(bench.server, old, new)
    note = f"{deleted:,.0f} deleted and {done:,.0f} done each second"
    what = "tasks that retention deletes beside a drain, of those that are done meanwhile"
    bench.report.add("retention", what, "", [deleted / done], Bar(1.0), note)


def _deleted_and_done(server: Server, old: int, new: int) -> tuple[float, float]:
    """Tasks per second, at the same time."""
    server.fill_finished(old, LONG_AGO)
    server.settle()
    before = attempts(server)
    with worker(server, *TWO, env=settings(recovery=OFTEN)) as running:
        until(lambda: _old(server) < old, [running], "the first deletion", 0.1)
        server.fill("noop", new)
        there = left = _old(server)
        if not there:
            raise Failed("everything old was deleted before the drain began: this is not a measurement")
        begin, deleted_s = time.monotonic(), 0.0
        server.ring()
        while attempts(server) < before + new:
            running.must_live()
            if left:  # asking takes the server some milliseconds
                left, deleted_s = _old(server), time.monotonic() - begin
            time.sleep(0.25)
        done_s = time.monotonic() - begin
        if left:
            left, deleted_s = _old(server), time.monotonic() - begin
    server.clear()
    return (there - left) / deleted_s, new / done_s


def _old(server: Server) -> int:
    return int(server.row("SELECT count(*) FROM horsies_tasks WHERE completed_at < now() - interval '50 days'")[0])


_DISK = "SELECT pg_total_relation_size('horsies_tasks') + pg_total_relation_size('horsies_task_attempts')"
