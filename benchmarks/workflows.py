"""How fast workflows run, by the times that stand in their rows.

They are started by a program of its own while no worker runs, their first tasks put off; then a worker is started, and
when it is idle they fall due together. The rate: all nodes (elements of a map included) divided by the time
from the begin of the first claim to the begin of the last transaction that ended a workflow.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks import workflow_start
from benchmarks.drain import READY_S, STALLED_S, sleep_until
from benchmarks.process import APP, WorkerProcess, worker
from benchmarks.server import Server

FAR_S = 3_600.0
SETTLE_S = 1.0


class Run(NamedTuple):
    """One run: what its start cost, how fast it went, and what each node cost."""

    start: workflow_start.Start
    nodes: int
    seconds: float
    cpu_us: dict[str, float]
    wal_bytes: float

    @property
    def rate(self) -> float:
        return self.nodes / self.seconds

    @property
    def ms_for_each(self) -> float:
        return self.seconds / self.nodes * 1000

    def __str__(self) -> str:
        spent = ", ".join(f"{part} {value:.0f}" for part, value in self.cpu_us.items())
        return f"{self.rate:,.0f} nodes/s; µs for each node: {spent}; bytes of WAL: {self.wal_bytes:,.0f}"


def measure(
    server: Server,
    shape: str,
    size: int,
    *options: str,
    app: str = APP,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Run:
    """Start workflows of this shape and let one worker run them; the tables are empty afterwards."""
    started = start(server, shape, size)
    server.put_off(FAR_S)
    server.settle()
    with worker(server, *options, app=app, env=env, log=log) as running:
        time.sleep(SETTLE_S)
        due = server.put_off(READY_S)
        idle, wal = running.cpu(), server.wal_bytes()
        sleep_until(due)
        server.ring()
        _wait(server, running)
        spent, wal = running.cpu().since(idle), server.wal_bytes() - wal
    seconds = _seconds(server, started.nodes)
    server.clear()
    cpu_us = {name: value * 1e6 for name, value in spent.per(started.nodes).items()}
    return Run(started, started.nodes, seconds, cpu_us, wal / started.nodes)


def start(server: Server, shape: str, size: int) -> workflow_start.Start:
    """The workflows are there afterwards, without what only warmed the program up."""
    started = workflow_start.measure(shape, size)
    server.forget_workflows("one")
    return started


def _wait(server: Server, running: WorkerProcess) -> None:
    """Until none is left. Asking must cost next to nothing, so progress is what the sequence of attempts says."""
    seen, deadline = -1, time.monotonic() + STALLED_S
    while server.row("SELECT EXISTS (SELECT FROM horsies_workflows WHERE status = 'RUNNING')")[0]:
        running.must_live()
        done = int(server.row("SELECT last_value FROM horsies_task_attempts_id_seq")[0])
        if done != seen:
            seen, deadline = done, time.monotonic() + STALLED_S
        if time.monotonic() > deadline:
            raise SystemExit(f"workflows are left, and nothing has happened for {STALLED_S:.0f} s")
        time.sleep(0.05)


def _seconds(server: Server, nodes: int) -> float:
    seconds, done = server.row(_SPAN)
    if done != nodes:
        raise SystemExit(f"{done} of {nodes} nodes are completed: this is not a measurement")
    return float(seconds)


_SPAN = """
    SELECT (SELECT extract(epoch FROM max(completed_at)) FROM horsies_workflows WHERE status = 'COMPLETED')
           - (SELECT extract(epoch FROM min(claimed_at)) FROM horsies_tasks),
           (SELECT count(*) FROM horsies_workflow_tasks WHERE status = 'COMPLETED')
"""
