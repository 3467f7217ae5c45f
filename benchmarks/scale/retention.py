"""Can old tasks be deleted as fast as new ones are done, by the same worker at the same time?"""

from __future__ import annotations

import time
from typing import NamedTuple

from benchmarks import drain
from benchmarks.figures import TWO, Bench
from benchmarks.process import worker
from benchmarks.report import Bar
from benchmarks.scale.sizes import LOCATOR, settings
from benchmarks.scale.watch import until
from benchmarks.server import FINISHED, Server

OLD, NEW = 200_000, 40_000
LONG_AGO = "now() - interval '60 days' + nth * interval '1 second'"
LOOK_S = 0.25  # between looks at what is left, which take the server some milliseconds
OFTEN = {"check_interval_ms": 1_000}  # the first pass begins after this time


class Rates(NamedTuple):
    """Tasks per second, at the same time."""

    deleted: float
    done: float

    def __str__(self) -> str:
        return f"{self.deleted:,.0f} deleted and {self.done:,.0f} done each second"


def retention(bench: Bench) -> None:
    old, new = bench.some(OLD, 1_000), bench.some(NEW, 200)
    for _ in bench.times(f"{old:,} old tasks are deleted beside a drain of {new:,}", runs=1):
        found = measure(bench.server, old, new)
        bench.say(str(found))
    add = bench.report.add
    what = "tasks that retention deletes beside a drain, of those that are done meanwhile"
    add("retention", what, "", [found.deleted / found.done], Bar(1.0), str(found))
    add("retention_rate", "… deleted", "tasks/s", [found.deleted])


def measure(server: Server, old: int, new: int) -> Rates:
    server.fill("noop", old, **FINISHED | dict.fromkeys(_TIMES, LONG_AGO))
    with server.silently() as conn:
        conn.execute(_ATTEMPTS)
    server.settle()
    before = drain.attempts(server)
    with worker(server, *TWO, app=LOCATOR, env=settings(recovery=OFTEN)) as running:
        until(lambda: left(server) < old, "the first deletion")
        server.fill("noop", new)
        there, begun = left(server), time.monotonic()
        if not there:
            raise SystemExit("everything old was deleted before the drain began: this is not a measurement")
        server.ring()
        remaining, deleted_s = there, 0.0
        while drain.attempts(server) < before + new:
            running.must_live()
            if remaining:
                remaining, deleted_s = left(server), time.monotonic() - begun
            time.sleep(LOOK_S)
        done_s = time.monotonic() - begun
        if remaining:
            remaining, deleted_s = left(server), time.monotonic() - begun
    server.clear()
    return Rates((there - remaining) / deleted_s, new / done_s)


def left(server: Server) -> int:
    return int(server.row("SELECT count(*) FROM horsies_tasks WHERE completed_at < now() - interval '50 days'")[0])


_TIMES = ("sent_at", "enqueued_at", "created_at", "updated_at", "claimed_at", "started_at", "completed_at")
_ATTEMPTS = """
    INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, started_at, finished_at, worker_id)
    SELECT id, 1, 'COMPLETED', FALSE, started_at, completed_at, claimed_by_worker_id FROM horsies_tasks
"""
