"""Short tasks, and then longer ones, on three workers that have nothing else to do.

What the workers learned from the short tasks must not make one of them keep the longer ones to itself while the others
are idle. The figure is the time until the longer ones are done, of the time that they would take if every child always
had one.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import NamedTuple

from benchmarks.durations import REST_S
from benchmarks.process import worker
from benchmarks.server import Server

WORKERS, PROCESSES = 3, 2
SHORT, LONGER = 300, 200
SETTLE_S = 3.0  # until the workers sleep
PATIENCE_S = 120.0


class Mixed(NamedTuple):
    """One run: how many times the ideal it took, and how many of the longer tasks each worker ran."""

    ratio: float
    shares: list[int]

    def __str__(self) -> str:
        return f"{self.ratio:.2f} of the ideal; the workers ran {', '.join(map(str, self.shares))}"


def measure(server: Server, *options: str) -> Mixed:
    with ExitStack() as stack:
        for _ in range(WORKERS):
            stack.enter_context(worker(server, "--processes", str(PROCESSES), *options))
        time.sleep(SETTLE_S)
        server.fill("noop", SHORT)
        server.ring()
        _wait(server, SHORT)
        (begun,) = server.row("SELECT now()")
        server.fill("rest", LONGER)
        server.ring()
        _wait(server, SHORT + LONGER)
        seconds, shares = server.row(_ENDS, begun)
    server.clear()
    return Mixed(seconds / (LONGER * REST_S / (WORKERS * PROCESSES)), shares)


def _wait(server: Server, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while server.row("SELECT count(*) FROM horsies_tasks WHERE status = 'COMPLETED'")[0] < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"{count} tasks did not end within {PATIENCE_S:.0f} s")
        time.sleep(0.01)


_ENDS = """
    WITH rested AS (SELECT * FROM horsies_tasks WHERE task_name = 'rest'),
         shares AS (SELECT count(*) AS share FROM rested GROUP BY claimed_by_worker_id)
    SELECT extract(epoch FROM (SELECT max(completed_at) FROM rested) - %s::timestamptz)::float8,
           (SELECT array_agg(share ORDER BY share DESC) FROM shares)
"""
