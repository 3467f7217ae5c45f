"""How fast waiting tasks are worked off, by the times that stand in their rows.

One definition for every figure: the tasks that were completed before the last completion began, divided by the time
from the begin of the first claim to the begin of the last completion. Start and end of the worker are not in it, and
nothing is counted whose commit was not waited for: it errs on the low side, by one batch.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from benchmarks.bench import Bench
from benchmarks.processes import TWO, Failed, until, worker
from benchmarks.report import Bar
from benchmarks.server import Server

LEAD_S = 3.0
READY_S = 0.3
TRIES = 5
NAPS = 2_000


class Drain(NamedTuple):
    """One run: tasks per second, and what each cost in CPU and write-ahead log."""

    rate: float
    cpu_us: dict[str, float]
    wal_bytes: float

    def __str__(self) -> str:
        spent = ", ".join(f"{part} {value:.1f}" for part, value in self.cpu_us.items())
        return f"{self.rate:,.0f} tasks/s; µs for each task: {spent}; bytes of WAL: {self.wal_bytes:,.0f}"


def drain(bench: Bench) -> None:
    runs = [drained(bench, bench.tasks, *TWO) for _ in bench.times("drain")]
    add = bench.report.add
    what = f"drain of {bench.tasks:,} no-op tasks, `--processes 2`"
    add("drain", what, "tasks/s", [run.rate for run in runs], Bar(24_000))
    for part in runs[0].cpu_us:
        add(f"cpu_{part}", f"… processor time for each task, {part}", "µs", [run.cpu_us[part] for run in runs])
    add("cpu", "… all together", "µs", [sum(run.cpu_us.values()) for run in runs], Bar(66, "under"))
    add("wal", "… write-ahead log for each task", "bytes", [run.wal_bytes for run in runs])


def strict(bench: Bench) -> None:
    count = max(200, bench.tasks // 8)
    rates = [drained(bench, count, *TWO, "--run-ahead-ms", "0").rate for _ in bench.times("drain without run-ahead")]
    bench.report.add("strict", f"the same with `--run-ahead-ms 0` ({count:,} tasks)", "tasks/s", rates, Bar(1_200))


def naps(bench: Bench) -> None:
    options = ("--processes", "1", "--concurrency", "200")
    rates = [drained(bench, NAPS, *options, task="nap").rate for _ in bench.times("async tasks that sleep")]
    what = f"{NAPS:,} `async def` tasks that sleep 50 ms, one process, `--concurrency 200`"
    bench.report.add("async", what, "tasks/s", rates, Bar(2_500))


def drained(bench: Bench, count: int, *options: str, task: str = "noop", lead_s: float = LEAD_S) -> Drain:
    """One run, with a word about it; no task is left afterwards."""
    found = measure(bench.server, count, *options, task=task, lead_s=lead_s)
    bench.server.clear()
    bench.say(str(found))
    return found


def measure(server: Server, count: int, *options: str, task: str = "noop", lead_s: float = LEAD_S) -> Drain:
    """Work off `count` tasks that fall due all at once before one worker that is idle; the table is left as it is.

    They are put in while no worker runs, `lead_s` ahead of their time, which must suffice to settle and to start one.
    """
    for _ in range(TRIES):
        if (found := _in_time(server, count, *options, task=task, lead_s=lead_s)) is not None:
            return found
        lead_s *= 2
    raise Failed("the worker is never ready in time")


def _in_time(server: Server, count: int, *options: str, task: str, lead_s: float) -> Drain | None:
    """None if the worker was ready too late."""
    (due,) = server.row("SELECT extract(epoch FROM now() + make_interval(secs => %s))::float8", lead_s)
    server.fill(task, count, enqueued_at=f"to_timestamp({due!r})")
    server.settle()
    target = attempts(server) + count
    with worker(server, *options) as running:
        in_time = sleep_until(due - READY_S)
        idle, wal, mine = running.cpu(), server.wal_bytes(), running.worker_id
        sleep_until(due)
        server.ring()
        # Asking must cost next to nothing: the machine is busy being measured.
        until(
            lambda: attempts(server) >= target and not server.row(_HOLDS_SOME, mine)[0],
            [running], "a drain", 0.05, progress=lambda: attempts(server),
        )  # fmt: skip
        spent, wal = running.cpu().since(idle), server.wal_bytes() - wal
    done, seconds, last = server.row(_PACE, mine)
    if done != count:
        raise Failed(f"{done} of {count} tasks are completed: this is not a measurement")
    cpu_us = {name: used * 1e6 for name, used in spent.per(count).items()}
    return Drain((done - last) / seconds, cpu_us, wal / count) if in_time else None


def sleep_until(moment: float) -> bool:
    """Whether it was still to come. The server is on this machine, so its clock is ours."""
    left = moment - time.time()
    time.sleep(max(0.0, left))
    return left > 0


def attempts(server: Server) -> int:
    """How many attempts were ever written, from the sequence of their ids."""
    return int(server.row("SELECT last_value - 1 + is_called::int FROM horsies_task_attempts_id_seq")[0])


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
