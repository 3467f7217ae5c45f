"""Every figure of the speed table: how it is measured and what it has to reach. `GROUPS` names them for `ONLY=`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from benchmarks import (
    drain,
    from_sql,
    latency,
    mixed,
    recovery,
    schedules,
    sending,
    startup,
    statements,
    workflow_start,
    workflows,
)
from benchmarks.durations import PAUSE_S, REST_S
from benchmarks.process import ROOT, worker
from benchmarks.report import Bar, Report, percentiles, ratios
from benchmarks.server import Server

TWO = ("--processes", "2")
NAPS = 2_000
SENDERS = 16
SENT_BY_ONE, SENT_BY_MANY = 600, 3_200
MANY = 50_000
PINGS = 300
FLUSHES = 700
MILLION = 1_000_000
FULL_LEAD_S = 8.0  # vacuum and analyze have more to read
IDLE_S = 30
KILLS = 7
SETTLE_S = 2
SCHEDULES = 10_000
SCHEDULES_S = 30


class Bench(NamedTuple):
    """What was asked for, the server it runs on, and the report that grows."""

    server: Server
    report: Report
    console: Console
    tasks: int
    repeat: int
    rows: int = 1_000_000
    workers: int = 16
    share: float = 1.0  # of all counts and times of `scale`, to try it out
    of: Path = ROOT  # the checkout whose starts are measured

    def some(self, count: int, least: int = 1) -> int:
        return max(least, round(count * self.share))

    def times(self, what: str, runs: int = 0, rounds: int = 1) -> Iterator[int]:
        """The runs of one figure (as many as were asked for, or `runs`; each so many rounds), a word about each."""
        runs = runs or self.repeat * rounds
        for run in range(runs):
            begin = time.monotonic()
            with self.console.status(f"{what} ({run + 1} of {runs})"):
                yield run
            self.say(f"{what} ({run + 1} of {runs}): {time.monotonic() - begin:.1f} s", "")

    def say(self, text: str, indent: str = "  ") -> None:
        self.console.print(f"{indent}{text}", highlight=False, markup=False, soft_wrap=True)


def drains(bench: Bench) -> None:
    """The ceiling and the drain, turn by turn; memory and processor time with them."""
    tops: list[drain.Ceiling] = []
    runs: list[drain.Drain] = []
    for _ in bench.times("ceiling and drain"):
        tops.append(drain.measure_ceiling(bench.server, bench.tasks))
        bench.say(f"ceiling {tops[-1]}")
        runs.append(drain.measure(bench.server, bench.tasks, *TWO))
        bench.server.clear()
        bench.say(f"drain {runs[-1]}")
    rates, most = [run.rate for run in runs], [top.rate for top in tops]
    add = bench.report.add
    add("ceiling", "ceiling: the same statements in batches of 200, no children", "tasks/s", most)
    for part in tops[0].cpu_us:
        add(f"ceiling_cpu_{part}", f"… processor time for each task, {part}", "µs", [top.cpu_us[part] for top in tops])
    add("drain", f"drain of {bench.tasks:,} no-op tasks, `--processes 2`", "tasks/s", rates, Bar(24_000))
    add("drain_ratio", "… of the ceiling", "", ratios(rates, most), Bar(0.5))
    for part in runs[0].cpu_us:
        add(f"cpu_{part}", f"… processor time for each task, {part}", "µs", [run.cpu_us[part] for run in runs])
    add("cpu", "… all together", "µs", [sum(run.cpu_us.values()) for run in runs], Bar(66, "under"))
    add("wal", "… write-ahead log for each task", "bytes", [run.wal_bytes for run in runs])
    for part, bar in (("supervisor", Bar(90, "under")), ("child", Bar(60, "under")), ("launcher", None)):
        found = [run.memory[part] for run in runs]
        note = f"resident; proportional {found[-1].pss:.0f} MB, private {found[-1].uss:.0f} MB"
        add(f"memory_{part}", f"memory after the drain, {part}", "MB", [one.rss for one in found], bar, note)
    what = "memory of all these processes, each shared page divided among those who share it"
    add("memory_all", what, "MB", [run.pss_mb for run in runs], Bar(80, "under"))


def strict(bench: Bench) -> None:
    count = max(200, bench.tasks // 8)
    rates, most = [], []
    for _ in bench.times("drain without run-ahead"):
        most.append(drain.measure_ceiling(bench.server, count, 1).rate)
        bench.say(f"ceiling in batches of 1 {most[-1]:,.0f} tasks/s")
        rates.append(_drained(bench, count, *TWO, "--run-ahead-ms", "0"))
    what = f"the same with `--run-ahead-ms 0` ({count:,} tasks)"
    bench.report.add("strict", what, "tasks/s", rates, Bar(1_200))
    bench.report.add("strict_ratio", "… of the ceiling in batches of 1", "", ratios(rates, most))
    bench.report.add("strict_ceiling", "… that ceiling", "tasks/s", most)


def naps(bench: Bench) -> None:
    options = ("--processes", "1", "--concurrency", "200")
    rates = [_drained(bench, NAPS, *options, task="nap") for _ in bench.times("async tasks that sleep")]
    what = f"{NAPS:,} `async def` tasks that sleep 50 ms, one process, `--concurrency 200`"
    bench.report.add("async", what, "tasks/s", rates, Bar(2_500))


def lengths(bench: Bench) -> None:
    """Short tasks, then longer ones; without run-ahead beside it."""
    runs: list[mixed.Mixed] = []
    plain: list[mixed.Mixed] = []
    for _ in bench.times("mixed lengths on three workers"):
        runs.append(mixed.measure(bench.server))
        bench.say(str(runs[-1]))
        plain.append(mixed.measure(bench.server, "--run-ahead-ms", "0"))
        bench.say(f"without run-ahead: {plain[-1]}")
    what = (
        f"{mixed.SHORT} no-op tasks, then {mixed.LONGER} of {1000 * REST_S:.0f} ms, on three workers: of the ideal time"
    )
    bench.report.add("mixed", what, "", [run.ratio for run in runs], Bar(1.2, "under"))
    bench.report.add("mixed_strict", "… with `--run-ahead-ms 0`", "", [run.ratio for run in plain])


def _drained(bench: Bench, count: int, *options: str, task: str = "noop") -> float:
    found = drain.measure(bench.server, count, *options, task=task)
    bench.server.clear()
    bench.say(str(found))
    return found.rate


def sends(bench: Bench) -> None:
    """Ours and the raw insert, turn by turn, and whoever came second comes first the next time."""
    _sends(bench, "send_1", "`send_async`, one producer", sending.with_asyncio, 1)
    _sends(bench, f"send_{SENDERS}", f"`send_async`, {SENDERS} producers", sending.with_asyncio, SENDERS)
    _sends(bench, f"send_{SENDERS}_threads", f"`send`, {SENDERS} threads", sending.with_threads, SENDERS)


def _sends(bench: Bench, key: str, what: str, measure: Callable[..., sending.Pair], senders: int) -> None:
    pairs = []
    count = SENT_BY_ONE if senders == 1 else SENT_BY_MANY
    for turn in bench.times(f"{what}, and raw inserts", rounds=2):
        pairs.append(measure(bench.server, count, senders, raw_first=bool(turn % 2)))
        bench.say(f"{pairs[-1].ours:,.0f} and {pairs[-1].raw:,.0f} tasks/s")
    ours, raw = [pair.ours for pair in pairs], [pair.raw for pair in pairs]
    bench.report.add(key, f"{what}, one by one", "tasks/s", ours)
    bench.report.add(f"{key}_raw", "… the raw insert beside it", "tasks/s", raw)
    bench.report.add(f"{key}_ratio", "… of the raw insert", "", ratios(ours, raw), Bar(0.6))


def many(bench: Bench) -> None:
    rates = []
    for _ in bench.times("send_many"):
        rates.append(sending.all_at_once(bench.server, MANY))
        bench.say(f"{rates[-1]:,.0f} tasks/s")
    bench.report.add("send_many", f"`send_many` of {MANY:,}", "tasks/s", rates, Bar(55_000))


def from_a_trigger(bench: Bench) -> None:
    """A row trigger and `send_many`, turn by turn."""
    ours: list[float] = []
    python: list[float] = []
    for _ in bench.times("a row trigger, and send_many"):
        ours.append(from_sql.by_trigger(bench.server, MANY))
        python.append(sending.all_at_once(bench.server, MANY))
        bench.say(f"{ours[-1]:,.0f} and {python[-1]:,.0f} tasks/s")
    bench.report.add("sql", f"`horsies_send` in a row trigger, {MANY:,} rows in one statement", "tasks/s", ours)
    bench.report.add("sql_ratio", "… of `send_many` beside it", "", ratios(ours, python))


def pings(bench: Bench) -> None:
    found = [latency.measure(bench.server, PINGS) for _ in bench.times(f"latency of {PINGS} sends")]
    for key, what, runs, limit in (
        ("start", "the start of user code", [one.start for one in found], 3),
        ("result", "the result seen by `get`", [one.result for one in found], 4.5),
    ):
        cuts = percentiles([value for run in runs for value in run])
        note = f"p95 {cuts[95]:.1f} ms, p99 {cuts[99]:.1f} ms"
        medians = [percentiles(run)[50] for run in runs]
        bench.report.add(f"latency_{key}", f"idle, `send` to {what}: p50", "ms", medians, Bar(limit, "under"), note)
    for _ in bench.times("bare flushes", 1):
        bare = latency.flushes(bench.server.directory, FLUSHES)
    note = f"the longest of {len(bare)}: {max(bare):.0f} ms; a send waits for three of them"
    bench.report.add("flush", "… a bare flush of 8 kB to the same disk: p50", "ms", [percentiles(bare)[50]], None, note)


def full(bench: Bench) -> None:
    """The drain in a table with a million finished and a million future tasks; before and after it in an empty one."""
    empty = [_drained(bench, bench.tasks, *TWO) for _ in bench.times("drain of an otherwise empty table")]
    for _ in bench.times("filling the table with 2,000,000 tasks", runs=1):
        bench.server.fill_finished(MILLION)
        bench.server.fill("noop", MILLION, enqueued_at="now() + interval '1 day' + nth * interval '1 second'")
        bench.server.settle()
    runs: list[drain.Drain] = []
    for _ in bench.times("drain of the full table"):
        runs.append(drain.measure(bench.server, bench.tasks, *TWO, lead_s=FULL_LEAD_S))
        bench.say(str(runs[-1]))
    bench.server.clear()
    empty += [_drained(bench, bench.tasks, *TWO) for _ in bench.times("drain of the table, empty again")]
    rates, usual = [run.rate for run in runs], statistics.median(empty)
    postgres = statistics.median(run.cpu_us["postgres"] for run in runs)
    note = f"processor time for each task, postgres {postgres:.0f} µs"
    bench.report.add("empty", "drain of the otherwise empty table, before and after the next", "tasks/s", empty)
    bench.report.add(
        "full", "drain with 10^6 finished and 10^6 future tasks in the table", "tasks/s", rates, None, note
    )
    bench.report.add("full_ratio", "… of the empty table", "", [rate / usual for rate in rates], Bar(0.7))


def idle(bench: Bench) -> None:
    for _ in bench.times(f"an idle worker over {IDLE_S} s", runs=1):
        with worker(bench.server, *TWO) as running:
            time.sleep(SETTLE_S)
            before, begin = running.cpu(), time.monotonic()
            time.sleep(IDLE_S)
            spent = running.cpu().since(before).per((time.monotonic() - begin) / 100)
    postgres = spent.pop("postgres")
    note = ", ".join(f"{part} {value:.2f} %" for part, value in spent.items())
    what = f"processor time of an idle worker over {IDLE_S} s, of one core"
    bench.report.add("idle", what, "%", [sum(spent.values())], Bar(1, "under"), note)
    bench.report.add("idle_postgres", "… of PostgreSQL meanwhile", "%", [postgres])


def by_statement(bench: Bench) -> None:
    """Where PostgreSQL spends its time."""
    for size, count in ((200, bench.tasks), (1, max(200, bench.tasks // 20))):
        runs = [statements.measure(bench.server, count, size) for _ in bench.times(f"statements, batches of {size}")]
        for stage in statements.STAGES:
            what = f"processor time of `{stage}` for each task, batches of {size}"
            bench.report.add(f"{stage}_{size}", what, "µs", [run[stage] for run in runs])


def recoveries(bench: Bench) -> None:
    """What a killed worker's tasks wait for; only when asked for."""
    found: list[float] = []
    for _ in bench.times("a worker is killed", rounds=KILLS):
        found += recovery.measure(bench.server)
        bench.say(f"{max(found[-recovery.RUNNING :]):.2f} s")
    of = percentiles(found)
    note = f"{len(found)} tasks; p50 {of[50]:.2f} s, longest {max(found):.2f} s"
    what = "worker killed with its children, from the kill to the recovery of its tasks by another: p95"
    bench.report.add("recovery", what, "s", [of[95]], Bar(5, "under"), note)
    again: list[float] = []
    for _ in bench.times("a worker is killed, and its tasks run again", rounds=KILLS):
        again += recovery.measure_again(bench.server)
        bench.say(f"{max(again[-recovery.RUNNING :]):.2f} s")
    of = percentiles(again)
    note = f"{len(again)} tasks; p50 {of[50]:.2f} s, longest {max(again):.2f} s"
    what = f"… to their next run by another that polls every {recovery.POLL_S} s, with a pause of {PAUSE_S} s: p95"
    bench.report.add("run_again", what, "s", [of[95]], Bar(3 + PAUSE_S, "under"), note)


def fans(bench: Bench) -> None:
    """One node, many that wait for it, one that waits for all: wide and ten times narrower, turn by turn."""
    wide, narrow = bench.tasks // 2, max(10, bench.tasks // 20)
    runs: list[workflows.Run] = []
    small: list[workflows.Run] = []
    for _ in bench.times(f"fan-out of {wide:,} and of {narrow:,} nodes"):
        small.append(_ran(bench, "fan_out", narrow))
        runs.append(_ran(bench, "fan_out", wide))
    add = bench.report.add
    what = f"workflow: one node, then {wide:,} at once, then one that waits for all of them"
    add("fan_out", what, "nodes/s", [run.rate for run in runs], Bar(5_000))
    slower = ratios([run.ms_for_each for run in runs], [run.ms_for_each for run in small])
    add("fan_out_ratio", f"… time for each node, of that with {narrow:,} at once", "", slower, Bar(1.5, "under"))
    for part in runs[0].cpu_us:
        add(f"fan_out_cpu_{part}", f"… processor time for each node, {part}", "µs", [run.cpu_us[part] for run in runs])
    add("fan_out_wal", "… write-ahead log for each node", "bytes", [run.wal_bytes for run in runs])


def graphs(bench: Bench) -> None:
    """Workflows of other shapes."""
    wide, long, many = bench.tasks // 2, bench.tasks // 10, bench.tasks // 40
    for shape, size, what in (
        ("mapped", wide, f"workflow: a map over a list of {wide:,}"),
        ("chain", long, f"workflow: a chain of {long:,}, each node waits for the one before"),
        ("diamonds", many, f"{many:,} workflows at once, each a diamond of 4 nodes"),
    ):
        runs = [_ran(bench, shape, size) for _ in bench.times(what.replace("workflow: ", ""))]
        bench.report.add(shape, what, "nodes/s", [run.rate for run in runs])


def starts(bench: Bench) -> None:
    """All nodes but one have a task from the start; twice as many shall need twice the memory, not four times."""
    size = bench.tasks // 2
    runs: list[workflow_start.Start] = []
    twice: list[workflow_start.Start] = []
    for _ in bench.times(f"start of {size:,} nodes, and of twice as many"):
        for width, found in ((size, runs), (2 * size, twice)):
            found.append(workflows.start(bench.server, "roots", width))
            bench.server.clear()
            bench.say(str(found[-1]))
    add = bench.report.add
    what = f"start of a workflow of {size:,} nodes, all with their tasks, into one that waits for them"
    add("start", what, "s", [run.start_s for run in runs], Bar(2, "under"))
    add("start_build", "… building it before, with all checks", "s", [run.build_s for run in runs])
    note = f"{runs[-1].before_mb:.0f} MB before"
    add("memory_start", "memory of that program, at the peak", "MB", [run.peak_mb for run in runs], None, note)
    grown = [[run.bytes_for_each for run in found] for found in (twice, runs)]
    what = "… growth for each node when there are twice as many, of the growth for each of those"
    add("memory_start_ratio", what, "", ratios(*grown), Bar(1.5, "under"))


def _ran(bench: Bench, shape: str, size: int) -> workflows.Run:
    run = workflows.measure(bench.server, shape, size, *TWO)
    bench.say(f"{shape} of {size:,}: {run}")
    return run


def schedulers(bench: Bench) -> None:
    """Ten thousand schedules, checked every second: nearly none due, then each of them about every 90 s."""
    add = bench.report.add
    for is_busy, key, what in (
        (False, "schedules", f"one scheduler of {SCHEDULES:,} schedules, checked every second, nearly none due"),
        (True, "schedules_busy", f"one scheduler of {SCHEDULES:,} schedules, each due about every 90 s"),
    ):
        found: list[schedules.Cost] = []
        for _ in bench.times(what, 1):
            found.append(schedules.measure(bench.server, SCHEDULES, SCHEDULES_S, is_busy=is_busy))
            bench.say(str(found[-1]))
        add(key, what, "%", [100 * one.scheduler for one in found], Bar(20, "under"), f"{found[-1]}")


def beginnings(bench: Bench) -> None:
    """What a start costs, of this checkout or another."""
    startup.measure(bench.server, bench.report, bench.times("every start"), bench.of)


GROUPS: dict[str, Callable[[Bench], None]] = {
    "startup": beginnings,
    "drain": drains,
    "strict": strict,
    "async": naps,
    "mixed": lengths,
    "send": sends,
    "many": many,
    "sql": from_a_trigger,
    "latency": pings,
    "full": full,
    "fan_out": fans,
    "graphs": graphs,
    "start": starts,
    "recovery": recoveries,
    "idle": idle,
    "schedules": schedulers,
    "statements": by_statement,
}
USUAL = [name for name in GROUPS if name not in ("recovery", "schedules", "sql")]
