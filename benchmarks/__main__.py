"""`make bench`: every figure beside its bar, on a PostgreSQL of its own (fsync on).

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
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks import (
    ROOT,
    against,
    drain,
    latency,
    profile,
    recovery,
    scale,
    schedules,
    sending,
    server,
    startup,
    web,
    workflows,
)
from benchmarks.bench import Bench
from benchmarks.processes import Failed, compile_all
from benchmarks.report import HEADINGS, Report, Row, facts, replaced

OUT = ROOT / "benchmarks" / "out"
BUSY = 0.5
WIDTH = 120  # where there is no terminal to ask

Group = Callable[[Bench], None]
STARTUP: dict[str, Group] = {"startup": startup.startup}
SPEED: dict[str, Group] = {
    "drain": drain.drain,
    "strict": drain.strict,
    "async": drain.naps,
    "send": sending.send,
    "many": sending.many,
    "latency": latency.latency,
    "fan_out": workflows.fan_outs,
    "graphs": workflows.graphs,
    "start": workflows.starts,
}
SCALE: dict[str, Group] = {
    "fleet": scale.fleet,
    "history": scale.history,
    "backlog": scale.backlog,
    "retention": scale.retention,
}
ASKED_FOR: dict[str, Group] = {"recovery": recovery.recovery, "schedules": schedules.schedules, "web": web.web}
GROUPS = STARTUP | SPEED | SCALE | ASKED_FOR
USUAL = [*STARTUP, *SPEED]
# What the servers of scale and of the dashboard get: a session for everyone, and statements that are counted.
ROOMY = profile.SETTINGS | {"max_connections": "400"}


class Page(NamedTuple):
    """A table of the documentation: it is written if all of its groups were measured."""

    path: Path
    mark: str
    groups: dict[str, Group]


PAGES = (
    Page(ROOT / "docs" / "performance.md", "startup", STARTUP),
    Page(ROOT / "docs" / "performance.md", "bench", SPEED),
    Page(ROOT / "docs" / "scale.md", "figures", SCALE),
)


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is stopped
    words = Console(stderr=True)
    if options.against is not None:
        return compare(options, words)
    begun = time.monotonic()
    compile_all(sys.executable, ROOT)
    is_roomy = not {*SCALE, "web"}.isdisjoint(options.only)
    settings = {**(ROOMY if is_roomy else {}), **dict(pair.split("=", 1) for pair in options.pg)}
    made: dict[str, list[Row]] = {}
    with server.running(settings) as on:
        report = Report(machine(), on.facts() | settings)
        words.print(f"{facts(report.machine)}\nPostgreSQL {facts(report.server)}", highlight=False, soft_wrap=True)
        if psutil.getloadavg()[0] > BUSY:
            words.print("The machine has other things to do: trust ratios a little and rates not at all.", style="red")
        asked = (options.tasks, options.repeat, options.rows, options.workers, options.share, options.of.resolve())
        bench = Bench(on, report, words, *asked)
        for name in options.only:
            before = len(report.rows)
            try:
                GROUPS[name](bench)
            except Failed as problem:  # it does not take the others with it: they have taken minutes
                bench.say(f"{name} failed: {problem}")
                report.add(name, f"{name}: failed, so some of its figures are missing", "", [], None, str(problem))
                on.clear()
            made[name] = report.rows[before:]
    report.machine = {**report.machine, "load after": load()}
    words.print(f"All of it took {time.monotonic() - begun:.0f} s; load after {load()}.", highlight=False)
    publish(report, made, options)
    return 0 if all(row.values for row in report.rows) else 1


def compare(options: argparse.Namespace, words: Console) -> int:
    """The other checkout and this one, in turns; in each turn one run of each figure."""
    other = options.against.resolve()
    passed = ["--repeat", "1", "--tasks", str(options.tasks), *(f"--pg={setting}" for setting in options.pg)]
    words.print(facts(machine()), highlight=False, soft_wrap=True)
    only = against.USUAL if options.only is USUAL else options.only
    found = against.run(other, only, options.rounds, passed, words)
    against.show(found, other, on_screen())
    return 0 if found else 1


def publish(report: Report, made: dict[str, list[Row]], options: argparse.Namespace) -> None:
    """Every run as JSON, the table, and the pages if they were asked for."""
    written = json.dumps(report.as_json(), indent=2, ensure_ascii=False)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "bench.json").write_text(written + "\n")
    if options.json:
        print(written)
    else:
        show(report)
    for page in whole_pages(options.only) if options.doc else ():
        rows = [row for name in page.groups for row in made[name]]
        text = Report(report.machine, report.server, rows).markdown()
        page.path.write_text(replaced(page.path.read_text(), text, page.mark))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the speed of horsies.")
    known = ", ".join([*GROUPS, "scale"])
    parser.add_argument("--only", type=names, default=USUAL, metavar="NAMES", help=f"some of {known}")
    parser.add_argument("--tasks", type=int, default=20_000, help="tasks of a drain (20000)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each figure; the median counts (3)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the largest table of scale (1000000)")
    parser.add_argument("--workers", type=int, default=16, help="workers of the largest fleet of scale (16)")
    parser.add_argument("--share", type=float, default=1.0, help="a part of other counts of scale, to try it out (1.0)")
    parser.add_argument("--of", type=Path, default=ROOT, metavar="DIR", help="measure the starts of this checkout")
    parser.add_argument("--against", type=Path, metavar="DIR", help="compare with the checkout in this directory")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each of both, with --against (5)")
    parser.add_argument("--pg", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="for bench.json")
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
    parser.add_argument("--doc", action="store_true", help="write the tables into docs/performance.md or docs/scale.md")
    options = parser.parse_args()
    if options.doc and not whole_pages(options.only):
        parser.error("a page gets every figure or none: --doc without --only, or with --only scale, or startup")
    return options


def whole_pages(only: list[str]) -> list[Page]:
    return [page for page in PAGES if page.groups.keys() <= set(only)]


def names(text: str) -> list[str]:
    """The groups in the order of `text`, each once; `scale` means all of that page."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    found = [name for word in words for name in (SCALE if word == "scale" else [word])]
    if unknown := [name for name in found if name not in GROUPS]:
        known = ", ".join([*GROUPS, "scale"])
        raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}, but {known}")
    return list(dict.fromkeys(found))


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
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold", justify="right" if heading in ("figure", "bar") else "left")
    for row in report.rows:
        colour = {True: "green", False: "red", None: ""}[row.holds]
        table.add_row(*(cell.replace("`", "") for cell in row.cells()), style=colour)
    on_screen().print(table)


def on_screen() -> Console:
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    return console


if __name__ == "__main__":
    sys.exit(main())
