"""Which statements reach the server, by pg_stat_statements: how many, and what each took.

`make bench PROFILE=drain` shows those that took most of a drain, `PROFILE=fan_out SIZE=10000` those of a shape of
`workflows`. The extension costs time itself, so the shares are what counts; the rates are in docs/performance.md.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from benchmarks import drain, workflows
from benchmarks.processes import TWO
from benchmarks.server import Server, running

SETTINGS = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "top"}
MOST = 14
_CONTROL = re.compile(r"\s*(begin|start transaction|commit|rollback|savepoint|release|set|reset|discard|show)\b", re.I)


class Statement(NamedTuple):
    """What one statement took while they were counted."""

    text: str
    calls: int
    rows: int
    ms: float
    wal_bytes: int


class Counted:
    """What was executed, the most expensive first; known when the block has ended."""

    found: list[Statement]

    @property
    def calls(self) -> int:
        """How many statements, without those that only open or close a transaction or set something."""
        return sum(one.calls for one in self.found if not _CONTROL.match(one.text))

    @property
    def claims(self) -> int:
        """How many of them looked for waiting tasks."""
        return sum(one.calls for one in self.found if "t.claim_seq +" in one.text and "is_waiting" in one.text)


@contextmanager
def counting(server: Server) -> Iterator[Counted]:
    """All statements of all sessions of a server with these SETTINGS, within the block."""
    server.do("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    server.do("SELECT pg_stat_statements_reset()")
    counted = Counted()
    yield counted
    (found,) = server.row(_STATEMENTS)
    counted.found = [Statement(*one) for one in found or []]


def of_run(server: Server, shape: str, size: int) -> tuple[int, list[Statement]]:
    """How many tasks the run had, and its statements."""
    with counting(server) as counted:
        if shape == "drain":
            drain.measure(server, size, *TWO)
        else:
            size = workflows.measure(server, shape, size, *TWO).nodes
    return size, counted.found


def lines(count: int, found: list[Statement]) -> list[str]:
    """A table, the most expensive first."""
    whole = sum(one.ms for one in found)
    head = f"{'µs a task':>10} {'share':>6} {'calls':>8} {'rows/call':>9} {'WAL a task':>10}  statement"
    rows = [
        f"{one.ms * 1000 / count:>10.1f} {one.ms / whole:>6.1%} {one.calls:>8,} {one.rows / one.calls:>9.1f}"
        f" {one.wal_bytes / count:>10,.0f}  {_shortened(one.text)}"
        for one in found[:MOST]
    ]
    return [head, *rows, f"{whole * 1000 / count:>10.1f} {1:>6.0%} {sum(one.calls for one in found):>8,}  all of them"]


def _shortened(text: str) -> str:
    plain = re.sub(r"--[^\n]*", "", text)
    return re.sub(r"\s+", " ", plain).strip()[:90]


# Without what the benchmark itself does.
_STATEMENTS = """
    SELECT json_agg(json_build_array(query, calls, rows, total_exec_time, wal_bytes) ORDER BY total_exec_time DESC)
    FROM pg_stat_statements
    WHERE toplevel AND query !~* '^\\s*(truncate|vacuum|checkpoint|create|drop|copy bench)'
      AND query !~ 'pg_stat_statements|bench_samples|horsies_ring'
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shapes = ", ".join(workflows.SHAPES)
    parser.add_argument("--shape", default="drain", help=f"drain, or a shape of workflows ({shapes})")
    parser.add_argument("--size", type=int, default=10_000)
    args = parser.parse_args()
    with running(SETTINGS) as server:
        count, found = of_run(server, args.shape, args.size)
    print("\n".join(lines(count, found)))


if __name__ == "__main__":
    main()
