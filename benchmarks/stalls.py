"""When did the machine itself stand still? A virtual machine may be stopped for a tenth of a second at any moment, and
whatever is measured then says nothing about a program.

One process for each processor (`python -m benchmarks.stalls NUMBER`) sleeps for two milliseconds again and again, and
notes when that took much longer. The machine stood still when that happened on all processors at once: a program that
keeps one of them busy does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from benchmarks.process import ROOT

NAP_S = 0.002
LONG_NS = 8_000_000
PROCESSORS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


class Stall(NamedTuple):
    """From when until when, in nanoseconds of the system's clock."""

    begin: int
    end: int

    def meets(self, begin: int, end: int) -> bool:
        return self.begin < end and begin < self.end


@contextmanager
def watched() -> Iterator[list[Stall]]:
    """The list is filled when the block has ended."""
    command = [sys.executable, "-m", "benchmarks.stalls"]
    watchers = [
        subprocess.Popen([*command, str(number)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for number in PROCESSORS
    ]
    found: list[Stall] = []
    try:
        yield found
    finally:
        noted = [[Stall(*pair) for pair in json.loads(watcher.communicate()[0])] for watcher in watchers]
        found += everywhere(noted)


def everywhere(noted: Sequence[Sequence[Stall]]) -> list[Stall]:
    """The times in which all of these stood still; there are none if nobody watched."""
    if not noted:
        return []
    common = list(noted[0])
    for others in noted[1:]:
        common = [
            Stall(max(one.begin, other.begin), min(one.end, other.end))
            for one in common
            for other in others
            if one.meets(*other)
        ]
    return common


def watch(processor: int) -> None:
    """Until the end of standard input."""
    os.sched_setaffinity(0, {processor})
    os.set_blocking(sys.stdin.fileno(), False)
    found, last = [], time.time_ns()
    while sys.stdin.buffer.read(1) is None:
        time.sleep(NAP_S)
        now = time.time_ns()
        if now - last > LONG_NS:
            found.append((last, now))
        last = now
    print(json.dumps(found))


if __name__ == "__main__":
    watch(int(sys.argv[1]))
