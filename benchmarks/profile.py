"""Which statements take the server's time: one run with pg_stat_statements, the statements that took most of it first.

`make profile` for a drain, `make profile SHAPE=fan_out SIZE=10000` for a shape of `workflow_graphs`. The extension
costs time itself, so the shares are what counts; the rates are in docs/performance.md.
"""

from __future__ import annotations

import argparse
import re
from typing import NamedTuple

from benchmarks import drain, workflows
from benchmarks.server import Server, running

SETTINGS = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "top"}
OPTIONS = ("--processes", "2")
MOST = 14


class Spent(NamedTuple):
    """What one statement took in a run."""

    text: str
    calls: int
    rows: int
    ms: float
    wal_bytes: int


def of_run(server: Server, shape: str, size: int) -> tuple[int, list[Spent]]:
    """How many tasks the run had, and its statements."""
    server.do("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    server.do("SELECT pg_stat_statements_reset()")
    if shape == "drain":
        count = size
        drain.measure(server, size, *OPTIONS)
    else:
        count = workflows.measure(server, shape, size, *OPTIONS).nodes
    (found,) = server.row(_STATEMENTS)
    return count, [Spent(*one) for one in found]


def lines(count: int, found: list[Spent]) -> list[str]:
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


_STATEMENTS = """
    SELECT json_agg(json_build_array(query, calls, rows, total_exec_time, wal_bytes) ORDER BY total_exec_time DESC)
    FROM pg_stat_statements WHERE toplevel AND query !~* '^(truncate|vacuum|checkpoint|create|drop|copy bench)'
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--shape", default="drain", help="drain, or a shape of workflows (fan_out, roots, mapped, chain, diamonds)"
    )
    parser.add_argument("--size", type=int, default=10_000)
    args = parser.parse_args()
    with running(SETTINGS) as server:
        count, found = of_run(server, args.shape, args.size)
    print("\n".join(lines(count, found)))


if __name__ == "__main__":
    main()
