"""`make bench-peers`: ours and other queues on the same server in the same run, each with its best settings.

    TASKS=60000 ROUNDS=3 PINGS=100 ONLY=pgqueuer,oban make bench-peers       DOCS=0 leaves docs/peers.md alone

First a few settings are tried for each (`catalog.py`), then all take their turn in every round. Prints a table, writes
benchmarks/out/peers.json, and puts the table and the chart into the documentation.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import signal
import sys
import time

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import ROOT
from benchmarks.peers import figures
from benchmarks.peers.catalog import CONTENDERS, Contender, Settings, described
from benchmarks.peers.chart import draw
from benchmarks.peers.figures import Samples
from benchmarks.peers.lab import Lab, opened
from benchmarks.peers.measure import Round, one_round, trial
from benchmarks.peers.program import WARM_UPS
from benchmarks.processes import Failed
from benchmarks.report import replaced

PAGE, CHART = ROOT / "docs" / "peers.md", ROOT / "docs" / "peers.png"
OUT = ROOT / "benchmarks" / "out" / "peers.json"
TASKS = int(os.environ.get("TASKS") or 60_000)
ROUNDS = int(os.environ.get("ROUNDS") or 3)
PINGS = int(os.environ.get("PINGS") or 100)
SECONDS = float(os.environ.get("SECONDS") or 1.5)
DRAIN_S = 4.0
FEWEST_TASKS = 2_000
BUSY = 0.5

console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
begin = time.monotonic()


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what we started is stopped
    notes: list[str] = []
    contenders = present(notes)
    if (load := os.getloadavg()[0]) > BUSY:
        notes.append(f"the machine was not idle (load {load:.1f}): treat the figures with caution")
    with_redis = any(one.needs_redis for one in contenders)
    with opened(max(TASKS, PINGS + WARM_UPS), with_redis=with_redis) as lab:
        if with_redis and lab.redis is None:
            notes.append("Celery is left out: there is no `redis-server` on this machine")
            contenders = [one for one in contenders if not one.needs_redis]
        facts = machine() | lab.facts()
        say(", ".join(f"{name} {value}" for name, value in facts.items()))
        say("versions: " + ", ".join(f"{name} {version}" for name, version in versions(contenders).items()))
        for note in notes:
            say(note)
        best, tasks = choose(lab, contenders, notes)
        samples = run_rounds(lab, [one for one in contenders if one.key in best], best, tasks, notes)
    settings = {one.key: told(one, best[one.key]) for one in contenders if one.key in best}
    found = figures.lines(contenders, samples, settings, tasks)
    report(found, contenders, facts, notes)
    return 0


def present(notes: list[str]) -> list[Contender]:
    """Those that are asked for and installed."""
    asked = {name for name in os.environ.get("ONLY", "").split(",") if name} | {"horsies"}
    wanted = [one for one in CONTENDERS if len(asked) == 1 or one.system in asked]
    missing = {one.system for one in wanted if not all(map(installed, one.distributions))}
    notes += [f"{name} is left out: it is not installed in this environment" for name in sorted(missing)]
    return [one for one in wanted if one.system not in missing]


def installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def versions(contenders: list[Contender]) -> dict[str, str]:
    names = dict.fromkeys(name for one in contenders for name in one.distributions)
    return {name: importlib.metadata.version(name) for name in names}


def machine() -> dict[str, str]:
    return {"cores": f"{os.cpu_count()} ({platform.machine()})", "Python": platform.python_version()}


def choose(lab: Lab, contenders: list[Contender], notes: list[str]) -> tuple[dict[str, Settings], dict[str, int]]:
    """The best settings of each, and how many tasks it drains in about the time of a round."""
    best: dict[str, Settings] = {}
    tasks: dict[str, int] = {}
    for one in contenders:
        rates: list[float] = []
        for settings in one.tries:
            try:
                rates.append(trial(lab, one, settings, min(TASKS, one.trial_tasks)))
                say(f"trying {one.title}: {described(settings)}: {rates[-1]:,.0f} tasks/s")
            except Failed as failure:
                rates.append(0.0)
                say(f"trying {one.title}: {described(settings)}: {failure}")
        if top := max(rates):
            best[one.key] = one.tries[rates.index(top)]
            tasks[one.key] = min(TASKS, max(FEWEST_TASKS, int(top * DRAIN_S) // 1_000 * 1_000))
        else:
            notes.append(f"{one.title} is left out: it did not run")
    return best, tasks


def run_rounds(
    lab: Lab, contenders: list[Contender], best: dict[str, Settings], tasks: dict[str, int], notes: list[str]
) -> dict[str, Samples]:
    samples = {one.key: Samples() for one in contenders}
    for number in range(1, ROUNDS + 1):
        for one in contenders:
            try:
                plan = Round(number, tasks[one.key], SECONDS, PINGS)
                one_round(lab, one, best[one.key], plan, samples[one.key])
                [drained] = samples[one.key]["drain"][number]
                say(f"round {number} of {ROUNDS}, {one.title}: {drained:,.0f} tasks/s drained")
            except Failed as failure:
                notes.append(f"{one.title} failed in round {number}")
                say(f"round {number} of {ROUNDS}, {one.title}: {failure}")
    return {key: found for key, found in samples.items() if found["drain"]}


def told(contender: Contender, settings: Settings) -> str:
    parts = [described(settings), contender.always]
    if contender.calm is not None and dict(contender.calm) != dict(settings):
        parts.append(f"for latency: {described(contender.calm)}")
    return "; ".join(filter(None, parts))


def report(found: list[figures.Line], contenders: list[Contender], facts: dict[str, str], notes: list[str]) -> None:
    for measures in figures.TABLES:
        show(figures.headings(measures), figures.body(found, measures))
    for line in found:
        console.print(f"{line.title}: {line.tasks:,} tasks; {line.settings}")
    for note in notes:
        console.print(f"NOTE {note}")
    OUT.parent.mkdir(exist_ok=True)
    text = {"facts": facts, "versions": versions(contenders), "notes": notes, "contenders": figures.as_json(found)}
    OUT.write_text(json.dumps(text, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if os.environ.get("DOCS") != "0":
        page = figures.page(found, versions(contenders), facts, notes, CHART.name)
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), page, "bench"), encoding="utf-8")
        draw(found, CHART)
        say(f"written: {PAGE.relative_to(ROOT)}, {CHART.relative_to(ROOT)}, {OUT.relative_to(ROOT)}")


def show(headings: list[str], rows: list[list[str]]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def say(text: str) -> None:
    console.print(f"[dim]{time.monotonic() - begin:6.1f} s[/] {text}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
