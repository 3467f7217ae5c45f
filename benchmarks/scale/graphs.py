"""Large workflows: does the rate hold with more nodes, is the reaper deceived, and what does a hop of a chain cost?"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks import drain, workflows
from benchmarks.figures import TWO, Bench
from benchmarks.report import Bar, ratios
from benchmarks.scale.sizes import LOCATOR, settings
from benchmarks.scale.watch import watching

WIDTHS = (10_000, 50_000)
HOPS = 400
CEILING = 400
# A reaper that looks often and waits for little, so that 50,000 nodes show what 100,000 do with the defaults.
IMPATIENT = {"crashed_worker_recovery_grace_ms": 2_000, "check_interval_ms": 1_000}
MOVED_ON = "moved on"
# 300 hops/s where the release before made 142; 0.13: its chain of its ceiling in batches of 1, by docs/performance.md.
HOP_OF_CEILING = 0.13 * 300 / 142
NOISE = 0.95


def graphs(bench: Bench) -> None:
    fans(bench)
    hops(bench)


def fans(bench: Bench) -> None:
    rates: dict[int, float] = {}
    widths = [bench.some(width, 10) for width in WIDTHS]
    for width in widths:
        for _ in bench.times(f"a fan-out of {width:,}", runs=1):
            run = workflows.measure(bench.server, "fan_out", width, *TWO, app=LOCATOR)
            bench.say(str(run))
        rates[width] = run.rate
    usual, wide = widths
    # As many rows, and as long: beside a short run the server does not even begin to clear away what is dead.
    for _ in bench.times(f"five fan-outs with {wide:,} nodes in all", runs=1):
        five = workflows.measure(bench.server, "fan_outs", wide, *TWO, app=LOCATOR)
        bench.say(str(five))
    add = bench.report.add
    add("graphs_usual", f"workflow: a fan-out of {usual:,}", "nodes/s", [rates[usual]])
    what = f"… of {wide:,}, of that"
    add("graphs_wide", what, "", [rates[wide] / rates[usual]], Bar(NOISE), f"{rates[wide]:,.0f} nodes/s")
    what = f"… of {wide:,}, of five with as many nodes in all"
    add("graphs_wide_of_five", what, "", [rates[wide] / five.rate], None, f"{five.rate:,.0f} nodes/s")
    warnings(bench, wide)


def warnings(bench: Bench, width: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "worker.log"
        env = settings(recovery=IMPATIENT)
        for _ in bench.times(f"a fan-out of {width:,} beside an impatient reaper", runs=1):
            bench.say(str(workflows.measure(bench.server, "fan_out", width, *TWO, app=LOCATOR, env=env, log=log)))
        said = log.read_text(errors="replace") if log.exists() else ""
    wrong = [line for line in said.splitlines() if MOVED_ON in line]
    what = "… warnings of the reaper about a crash that was none (it looks every second and waits 2 s)"
    bench.report.add("graphs_warnings", what, "", [len(wrong)], Bar(0, "at most"))


def hops(bench: Bench) -> None:
    length = bench.some(HOPS, 10)
    rates: list[float] = []
    tops: list[float] = []
    for _ in bench.times(f"a chain of {length:,}, and the ceiling in batches of 1"):
        tops.append(drain.measure_ceiling(bench.server, bench.some(CEILING, 20), 1).rate)
        rates.append(workflows.measure(bench.server, "chain", length, *TWO, app=LOCATOR).rate)
        bench.say(f"{rates[-1]:,.0f} hops/s, ceiling {tops[-1]:,.0f} tasks/s")
    for _ in bench.times("the statements of a chain", runs=1):
        with watching(bench.server) as seen:
            run = workflows.measure(bench.server, "chain", length, *TWO, app=LOCATOR)
    add = bench.report.add
    add("graphs_hops", f"workflow: a chain of {length:,}, hops", "/s", rates)
    what = "… of the ceiling of single tasks in batches of 1"
    add("graphs_hop_ratio", what, "", ratios(rates, tops), Bar(round(HOP_OF_CEILING, 2)))
    # What the start of the program and of the worker take is in it, and is little for so many hops.
    add("graphs_hop_statements", "… statements for each hop", "", [len(seen.statements) / run.nodes])
    add("graphs_hop_commits", "… transactions that write, for each hop", "", [seen.commits / run.nodes])
    add("graphs_hop_claims", "… claims for each hop", "", [len(seen.claims) / run.nodes])
