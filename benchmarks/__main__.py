"""`make bench`: every figure of the speed table beside its bar, and the ceiling, on a PostgreSQL of its own (fsync on).

    make bench ONLY=drain,latency REPEAT=5 TASKS=50000        make bench DOC=1 writes docs/performance.md

Only what is compared within one run means much: machine, disk and neighbours are part of every figure. Microseconds of
processor time for each task are the steadiest of them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks import server
from benchmarks.figures import GROUPS, USUAL, Bench
from benchmarks.report import Report, facts, replaced

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "benchmarks" / "out" / "bench.json"
PAGE = ROOT / "docs" / "performance.md"
BUSY = 0.5
WIDTH = 120  # where there is no terminal to ask


def main() -> int:
    options = parse()
    settings = dict(pair.split("=", 1) for pair in options.pg)
    words = Console(stderr=True)
    with server.running(settings) as on:
        report = Report(machine(), on.facts() | settings)
        words.print(f"{facts(report.machine)}\nPostgreSQL {facts(report.server)}", highlight=False, soft_wrap=True)
        if psutil.getloadavg()[0] > BUSY:
            words.print("The machine has other things to do: trust ratios a little and rates not at all.", style="red")
        bench = Bench(on, report, words, options.tasks, options.repeat)
        for name in options.only:
            GROUPS[name](bench)
    report.rows.sort(key=lambda row: row.key.startswith("memory"))  # measured on the way, shown at the end
    written = json.dumps(report.as_json(), indent=2, ensure_ascii=False)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(written + "\n")
    if options.json:
        print(written)
    else:
        show(report)
    if options.doc:
        PAGE.write_text(replaced(PAGE.read_text(), report.markdown()))
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the speed of horsies.")
    parser.add_argument("--only", type=names, default=USUAL, metavar="NAMES", help=f"some of {','.join(GROUPS)}")
    parser.add_argument("--tasks", type=int, default=20_000, help="tasks of a drain (20000)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each figure; the median counts (3)")
    parser.add_argument("--pg", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server")
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
    parser.add_argument("--doc", action="store_true", help="write the table into docs/performance.md")
    options = parser.parse_args()
    if options.doc and not set(USUAL) <= set(options.only):
        parser.error("the page gets every figure or none: --doc without --only")
    return options


def names(text: str) -> list[str]:
    found = [name for name in text.split(",") if name]
    if unknown := sorted(set(found) - set(GROUPS)):
        raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}, but {', '.join(GROUPS)}")
    return found


def machine() -> dict[str, str]:
    """Never a name or a path: the report is published. The load says whether the machine had something else to do."""
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "uvloop": "yes" if importlib.util.find_spec("uvloop") else "no",
        "load before": f"{psutil.getloadavg()[0]:.1f}",
    }


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
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
