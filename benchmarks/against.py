"""`make bench AGAINST=DIR`: the same figures of another checkout and of this one, in turns, and their ratios.

Each checkout measures itself with its own benchmarks and its own environment, because they know the inside of their own
version: so only figures that both have are compared, and a benchmark that was changed in between compares nothing.
Starts are measured from outside, by this checkout's benchmark for both. The servers get the same settings; if they
differ in something else, that is printed. That, this, this, that, and so on: a machine that gets slower hits both.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import ROOT
from benchmarks.processes import Failed, compile_all, python_of
from benchmarks.report import Row, shown

USUAL = ("startup", "drain", "latency", "send")
FROM_OUTSIDE = "startup"
UNKNOWN = 2  # how argparse ends a program that does not know the figure


@dataclass(frozen=True)
class Compared:
    """One figure of both: medians, and the ratio this/that of each round."""

    what: str
    unit: str
    that: float
    this: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def verdict(self) -> str:
        """Only what every round says."""
        if min(self.ratios) > 1:
            return "higher in every round"
        return "lower in every round" if max(self.ratios) < 1 else ""


def compared(rounds: Sequence[tuple[Sequence[Row], Sequence[Row]]]) -> list[Compared]:
    """Of the rows of that and this checkout in each round, those that both have in all of them; nothing is divided by
    zero."""
    if not rounds:
        return []
    values = [tuple({row.key: row.value for row in rows} for rows in pair) for pair in rounds]
    found: list[Compared] = []
    for row in rounds[0][1]:
        pairs = [(that.get(row.key), this.get(row.key)) for that, this in values]
        both = [(that, this) for that, this in pairs if that and this is not None]
        if len(both) == len(rounds):
            that, this = (statistics.median(side) for side in zip(*both, strict=True))
            found.append(Compared(row.what, row.unit, that, this, tuple(one / other for other, one in both)))
    return found


def run(other: Path, only: Sequence[str], rounds: int, options: Sequence[str], console: Console) -> list[Compared]:
    """Measure figure by figure and return what can be compared. `options` are those of both benchmarks."""
    for root in (other, ROOT):
        compile_all(str(python_of(root)), root)  # the memory of a process that compiles is larger too
    found: list[Compared] = []
    for name in only:
        pairs: list[tuple[Sequence[Row], Sequence[Row]]] = []
        for turn in range(rounds):
            order = (other, ROOT) if turn % 2 == 0 else (ROOT, other)
            with console.status(f"{name}, round {turn + 1} of {rounds}"):
                try:
                    done = {root: measured(root, name, options) for root in order}
                except Failed as problem:
                    console.print(f"{name} cannot be compared: {problem}", style="red", markup=False)
                    break
            if turn == 0:
                say_differences(done[other]["server"], done[ROOT]["server"], console)
            that, this = ([Row.from_json(row) for row in done[root]["rows"]] for root in (other, ROOT))
            pairs.append((that, this))
            load = os.getloadavg()[0]
            console.print(f"{name}, round {turn + 1} of {rounds}; load {load:.1f}", highlight=False)
        else:
            found += compared(pairs)
    return found


def measured(root: Path, name: str, options: Sequence[str]) -> dict[str, Any]:
    """What one checkout's benchmark reports, in a process of its own."""
    is_outside = name == FROM_OUTSIDE
    home = ROOT if is_outside else root
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "DATABASE_URL")}
    with tempfile.TemporaryDirectory(prefix="horsies-bench-") as out:
        command = [str(python_of(home)), "-m", "benchmarks", "--only", name, "--json", "--out", out, *options]
        if is_outside:
            command += ["--of", str(root)]
        done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == UNKNOWN:
        raise Failed(f"the benchmarks of {home} do not know it:\n{done.stderr}")
    if done.returncode:
        raise Failed(f"the benchmark of {home} ended with {done.returncode}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def say_differences(that: dict[str, str], this: dict[str, str], console: Console) -> None:
    for name in sorted(that.keys() | this.keys()):
        if that.get(name) != this.get(name):
            text = f"the servers differ: {name} is {that.get(name)} there and {this.get(name)} here"
            console.print(text, style="red", markup=False)


def show(found: Sequence[Compared], other: Path, console: Console) -> None:
    table = Table(title=f"this checkout, and {other}")
    table.add_column("what", overflow="fold")
    for column in ("that", "this", "this/that", "lowest–highest"):
        table.add_column(column, justify="right")
    table.add_column("")
    for one in found:
        spread = f"{min(one.ratios):.2f}–{max(one.ratios):.2f}"
        figures = (shown(one.that, one.unit), shown(one.this, one.unit), f"{one.ratio:.2f}", spread)
        table.add_row(one.what.replace("`", ""), *figures, one.verdict())
    console.print(table)
