"""`make bench`: every figure of the speed table beside its bar, and the ceiling, on a PostgreSQL of its own (fsync on).

    make bench ONLY=drain,latency REPEAT=5 TASKS=50000        make bench DOC=1 writes docs/performance.md
    make bench ONLY=scale ROWS=10000000 WORKERS=16            make bench ONLY=scale DOC=1 writes docs/scale.md
    make bench ONLY=startup                                   make bench ONLY=drain AGAINST=DIR compares two checkouts

Only what is compared within one run means much: machine, disk and neighbours are part of every figure. Microseconds of
processor time for each task are the steadiest of them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks import against, server
from benchmarks.figures import GROUPS, USUAL, Bench
from benchmarks.report import Report, facts, replaced
from benchmarks.scale import page, parts
from benchmarks.selection import chosen, parts_of_scale, whole_scale
from benchmarks.starting import ROOT, compile_all

OUT = ROOT / "benchmarks" / "out"
DOCS = ROOT / "docs"
BUSY = 0.5
STARTUP = "startup"  # its figures have a table of their own
WIDTH = 120  # where there is no terminal to ask


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is stopped
    given = dict(pair.split("=", 1) for pair in options.pg)
    settings = {**(parts.SETTINGS if parts_of_scale(options.only) else {}), **given}
    words = Console(stderr=True)
    if options.against is not None:
        return compare(options, words)
    begun = time.monotonic()
    compile_all(sys.executable, ROOT)
    with server.running(settings) as on:
        report = Report(machine(), on.facts() | settings)
        words.print(f"{facts(report.machine)}\nPostgreSQL {facts(report.server)}", highlight=False, soft_wrap=True)
        if psutil.getloadavg()[0] > BUSY:
            words.print("The machine has other things to do: trust ratios a little and rates not at all.", style="red")
        bench = Bench(
            on,
            report,
            words,
            options.tasks,
            options.repeat,
            options.rows,
            options.workers,
            options.share,
            options.of.resolve(),
        )
        for name in options.only:
            if name in GROUPS:
                GROUPS[name](bench)
            else:
                measure_part(bench, name)
    report.machine = {**report.machine, "load after": load()}
    words.print(f"All of it took {time.monotonic() - begun:.0f} s; load after {load()}.", highlight=False)
    report.rows.sort(key=lambda row: row.key.startswith("memory"))  # measured on the way, shown at the end
    publish(bench, options)
    return 0


def compare(options: argparse.Namespace, words: Console) -> int:
    """The other checkout and this one, in turns; in each turn one run of each figure."""
    other = options.against.resolve()
    passed = ["--repeat", "1", "--tasks", str(options.tasks), *(f"--pg={setting}" for setting in options.pg)]
    words.print(facts(machine()), highlight=False, soft_wrap=True)
    only = against.USUAL if options.only is USUAL else options.only
    found = against.run(other, only, options.rounds, passed, words)
    against.show(found, other, on_screen())
    return 0 if found else 1


def measure_part(bench: Bench, name: str) -> None:
    """One that fails does not take the others with it: they have taken minutes."""
    [part] = parts_of_scale([name])
    try:
        parts.PARTS[part](bench)
    except (SystemExit, Exception) as problem:
        if isinstance(problem, SystemExit) and not isinstance(problem.code, str):
            raise  # somebody wants us to stop
        bench.say(f"{name} failed: {problem}")
        bench.report.add(name, f"{name}: failed, so some of its figures are missing", "", [], None, str(problem))
        bench.server.clear()


def publish(bench: Bench, options: argparse.Namespace) -> None:
    """Every run as JSON, the table, and the pages if they were asked for."""
    report = bench.report
    written = json.dumps(report.as_json(), indent=2, ensure_ascii=False)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "bench.json").write_text(written + "\n")
    if options.json:
        print(written)
    else:
        show(report)
    if options.doc and STARTUP in options.only:
        target = DOCS / "performance.md"
        starts = report.some(lambda row: is_startup(row.key)).markdown()
        target.write_text(replaced(target.read_text(), starts, f"<!-- {STARTUP} -->", f"<!-- /{STARTUP} -->"))
    if options.doc and set(USUAL) <= set(options.only):
        target = DOCS / "performance.md"
        others = report.some(lambda row: not is_startup(row.key)).markdown()
        target.write_text(replaced(target.read_text(), others))
    if options.doc and parts_of_scale(options.only):
        target = DOCS / "scale.md"
        target.write_text(page.written(target.read_text(), report, bench.rows, bench.workers))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the speed of horsies.")
    known = ",".join([*GROUPS, "scale", *whole_scale(parts.PARTS)])
    parser.add_argument("--only", type=names, default=USUAL, metavar="NAMES", help=f"some of {known}")
    parser.add_argument("--tasks", type=int, default=20_000, help="tasks of a drain (20000)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each figure; the median counts (3)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the largest table of scale (1000000)")
    parser.add_argument("--workers", type=int, default=16, help="workers of the largest fleet of scale (16)")
    parser.add_argument("--share", type=float, default=1.0, help="a part of all counts of scale, to try it out (1.0)")
    parser.add_argument("--of", type=Path, default=ROOT, metavar="DIR", help="measure the starts of this checkout")
    parser.add_argument("--against", type=Path, metavar="DIR", help="compare with the checkout in this directory")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each of both, with --against (5)")
    parser.add_argument("--pg", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="for bench.json")
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
    parser.add_argument("--doc", action="store_true", help="write the table into docs/performance.md or docs/scale.md")
    options = parser.parse_args()
    if options.doc and not may_be_published(options.only):
        parser.error("a page gets every figure or none: --doc without --only, or with --only scale, or startup")
    return options


def may_be_published(only: Sequence[str]) -> bool:
    """All of what a page shows, and nothing else in its table."""
    is_whole = set(USUAL) <= set(only) and not parts_of_scale(only)
    return is_whole or set(only) in (set(whole_scale(parts.PARTS)), {STARTUP})


def is_startup(key: str) -> bool:
    return key.startswith(f"{STARTUP}_")


def names(text: str) -> list[str]:
    try:
        return chosen(text, GROUPS, parts.PARTS)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def machine() -> dict[str, str]:
    """Never a name or a path: the report is published. The load says whether the machine had something else to do."""
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "uvloop": "yes" if importlib.util.find_spec("uvloop") else "no",
        "load before": load(),
    }


def load() -> str:
    return f"{psutil.getloadavg()[0]:.1f}"


def show(report: Report) -> None:
    table = Table(title=f"horsies on {report.machine['cores']} cores")
    table.add_column("what", overflow="fold")
    for column in ("figure", "bar"):
        table.add_column(column, justify="right")
    table.add_column("holds", justify="center")
    for row in report.rows:
        what = row.what.replace("`", "") + (f"\n  [dim]{row.note}[/dim]" if row.note else "")
        colour = {True: "green", False: "red", None: ""}[row.holds]
        table.add_row(what, row.figure(), row.bar_text(), row.verdict(), style=colour)
    on_screen().print(table)


def on_screen() -> Console:
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    return console


if __name__ == "__main__":
    sys.exit(main())
