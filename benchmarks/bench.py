"""What a run of `make bench` has: the server, what was asked for, and the report that grows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from benchmarks import ROOT
from benchmarks.report import Report
from benchmarks.server import Server


class Bench(NamedTuple):
    server: Server
    report: Report
    console: Console
    tasks: int = 20_000
    repeat: int = 3
    rows: int = 1_000_000
    workers: int = 16
    share: float = 1.0  # of the other counts and times, to try it out
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
