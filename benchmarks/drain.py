"""How fast waiting tasks are worked off, by the times that stand in their rows.

One definition for every figure, the ceiling's included: the tasks that were completed before the last completion
began, divided by the time from the begin of the first claim to the begin of the last completion. Start and end of the
worker are not in it, and nothing is counted whose commit was not waited for: it errs on the low side, by one batch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

import psutil

from benchmarks import ceiling
from benchmarks.process import APP, Memory, WorkerProcess, own_seconds, worker
from benchmarks.server import Server

LEAD_S = 3.0
READY_S = 0.3
STALLED_S = 60.0
TRIES = 5


class Ceiling(NamedTuple):
    """One run: tasks per second, and what each cost in processor time."""

    rate: float
    cpu_us: dict[str, float]

    def __str__(self) -> str:
        return f"{self.rate:,.0f} tasks/s; µs for each task: {_listed(self.cpu_us)}"


class Drain(NamedTuple):
    """One run: tasks per second, what each cost in processor time and write-ahead log, and the memory afterwards."""

    rate: float
    cpu_us: dict[str, float]
    wal_bytes: float
    memory: dict[str, Memory]
    pss_mb: float

    def __str__(self) -> str:
        spent = f"µs for each task: {_listed(self.cpu_us)}; bytes of WAL: {self.wal_bytes:,.0f}"
        return f"{self.rate:,.0f} tasks/s; {spent}"


def _listed(cpu_us: dict[str, float]) -> str:
    return ", ".join(f"{part} {value:.1f}" for part, value in cpu_us.items())


def measure_ceiling(server: Server, count: int, batch: int = ceiling.BATCH) -> Ceiling:
    """The rate of the same statements without our worker around them."""
    from benchmarks.app import app

    server.fill("noop", count)
    server.settle()
    me = psutil.Process()
    driver = own_seconds(me)
    ceiling.runner()(ceiling.drain(app.config.broker, batch))
    spent = {"driver": own_seconds(me) - driver}
    rate = rate_of(server, ceiling.WORKER, count)
    server.clear()
    return Ceiling(rate, {part: seconds / count * 1e6 for part, seconds in spent.items()})


def measure(
    server: Server,
    count: int,
    *options: str,
    task: str = "noop",
    lead_s: float = LEAD_S,
    queue: str = "default",
    app: str = APP,
    env: Mapping[str, str] | None = None,
    instead: Mapping[str, str] | None = None,
) -> Drain:
    """Work off `count` tasks that fall due all at once before one worker that is idle; the table is left as it is.

    They are put in while no worker runs, `lead_s` ahead of their time, which must suffice to settle and to start one.
    """
    for _ in range(TRIES):
        due = server.fill_ahead(task, count, lead_s, **(instead or {}))
        server.settle()
        before = attempts(server)
        with worker(server, *options, app=app, env=env) as running:
            in_time = sleep_until(due - READY_S)
            idle, wal = running.cpu(), server.wal_bytes()
            sleep_until(due)
            server.ring(queue)
            wait(server, running, before + count)
            spent, wal = running.cpu().since(idle), server.wal_bytes() - wal
            memory, pss_mb = running.memory(), running.pss_mb()
            rate = rate_of(server, running.worker_id, count)
        if in_time:
            cpu_us = {name: seconds * 1e6 for name, seconds in spent.per(count).items()}
            return Drain(rate, cpu_us, wal / count, memory, pss_mb)
        lead_s *= 2
    raise SystemExit("the worker is never ready in time")


def sleep_until(moment: float) -> bool:
    """Whether it was still to come. The server is on this machine, so its clock is ours."""
    left = moment - time.time()
    time.sleep(max(0.0, left))
    return left > 0


def wait(server: Server, running: WorkerProcess, target: int) -> None:
    """Until so many attempts have ended. Asking must cost next to nothing: the machine is busy being measured."""
    seen, deadline = -1, time.monotonic() + STALLED_S
    mine = running.worker_id
    while True:
        done = attempts(server)
        if done >= target and not server.row(_HOLDS_SOME, mine)[0]:
            return
        running.must_live()
        if done != seen:
            seen, deadline = done, time.monotonic() + STALLED_S
        if time.monotonic() > deadline:
            raise SystemExit(f"{target - done} tasks are left, and nothing has happened for {STALLED_S:.0f} s")
        time.sleep(0.05)


def attempts(server: Server) -> int:
    """How many attempts were ever written, from the sequence of their ids."""
    return int(server.row("SELECT last_value - 1 + is_called::int FROM horsies_task_attempts_id_seq")[0])


def rate_of(server: Server, worker_id: str, count: int) -> float:
    done, seconds, last = server.row(_PACE, worker_id)
    if done != count:
        raise SystemExit(f"{done} of {count} tasks are completed: this is not a measurement")
    return float((done - last) / seconds)


_HOLDS_SOME = "SELECT EXISTS (SELECT FROM horsies_tasks WHERE claimed AND claimed_by_worker_id = %s)"
_PACE = """
    WITH done AS (
        SELECT claimed_at, completed_at, max(completed_at) OVER () AS ended FROM horsies_tasks
        WHERE status = 'COMPLETED' AND claimed_by_worker_id = %s
    )
    SELECT count(*), extract(epoch FROM max(completed_at) - min(claimed_at))::float8,
           count(*) FILTER (WHERE completed_at = ended)
    FROM done
"""
