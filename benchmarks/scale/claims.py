"""What stands in the way of a claim: a paused workflow in front, many queues, full pages, a queue that goes first."""

from __future__ import annotations

import statistics
import time
from typing import Any, NamedTuple

from benchmarks import drain
from benchmarks.figures import TWO, Bench
from benchmarks.process import worker
from benchmarks.report import Bar
from benchmarks.scale import programs
from benchmarks.scale.sizes import LOCATOR, queue, settings, with_queues
from benchmarks.scale.watch import until, watching
from benchmarks.server import Server
from horsies.core.models.queues import CustomQueueConfig

PAUSED = 20_000
QUEUES = (1, 1_000)
PINGS = 60
SETTLE_S = 2.0
LEAD_S = 6.0
FULL, HOT = 200_000, 10_000
UPPER, LOWER = 60_000, 2_000
SHARE = 0.2
SLOWER = 1.5


class Looked(NamedTuple):
    """Of a worker that is sent one task at a time: the result, and what the server says a claim took. Medians in ms."""

    result: float
    claim: float

    def __str__(self) -> str:
        return f"{self.result:.1f} ms to the result, a claim {self.claim:.2f} ms"


def claims(bench: Bench) -> None:
    behind_a_pause(bench)
    among_queues(bench)
    on_full_pages(bench)
    beside_a_queue_that_goes_first(bench)


def behind_a_pause(bench: Bench) -> None:
    count = bench.some(PAUSED, 50)
    for _ in bench.times(f"{count:,} tasks of a paused workflow in front", runs=1):
        free = look(bench, settings())
        programs.run("paused", count)
        bench.server.settle()
        held = look(bench, settings())
        bench.say(f"without: {free}; with: {held}")
        bench.server.clear()
    add = bench.report.add
    what = f"a claim behind {count:,} waiting tasks of a paused workflow, of one without them"
    add("claims_paused", what, "", [held.claim / free.claim], Bar(SLOWER, "at most"), f"{held.claim:.2f} ms")
    what = "… `send` to the result, of that without them"
    add("claims_paused_result", what, "", [held.result / free.result], Bar(SLOWER, "at most"), f"{held.result:.1f} ms")


def among_queues(bench: Bench) -> None:
    found: dict[int, Looked] = {}
    for count in sorted({bench.some(number) for number in QUEUES}):
        for _ in bench.times(f"a worker of {count:,} queues", runs=1):
            found[count] = look(bench, with_queues([queue(f"q{n:04}") for n in range(count)]))
            bench.server.clear()
            bench.say(str(found[count]))
    one, many = found[min(found)], found[max(found)]
    add, bar = bench.report.add, Bar(SLOWER, "at most")
    add("claims_queues", f"a claim of {max(found):,} queues, of that of one", "", [many.claim / one.claim], bar,
        f"{many.claim:.2f} ms")  # fmt: skip
    add("claims_queues_result", "… `send` to the result, of that with one", "", [many.result / one.result], bar,
        f"{many.result:.1f} ms")  # fmt: skip


def look(bench: Bench, env: dict[str, str]) -> Looked:
    pings = bench.some(PINGS, 5)
    with worker(bench.server, app=LOCATOR, env=env):
        time.sleep(SETTLE_S)
        result = programs.ping(pings, env)
        with watching(bench.server) as seen:
            programs.ping(pings, env)
    return Looked(result, statistics.median(one.ms for one in seen.claims))


def on_full_pages(bench: Bench) -> None:
    """Claims and ends change indexed columns, so they write the indexes; a start of its own would have to be a
    heap-only update, and one that is part of the claim writes nothing more."""
    full, count = bench.some(FULL, 100), bench.some(HOT, 100)
    for _ in bench.times(f"a drain in a table of {full:,} tasks", runs=1):
        bench.server.fill_finished(full)
        before, begun = index_writes(bench.server), drain.attempts(bench.server)
        drain.measure(bench.server, count, *TWO, app=LOCATOR, lead_s=LEAD_S)
        each = (index_writes(bench.server) - before) / (drain.attempts(bench.server) - begun)
        bench.server.clear()
        bench.say(f"the row of a task was written {each:.2f} times with its indexes")
    what = f"starts that write no index, in a table of {full:,} ended tasks"
    bench.report.add("claims_heap_only", what, "", [min(1.0, 3.0 - each)], Bar(0.9), f"{each:.2f} writes a task")


def index_writes(server: Server) -> int:
    """Updates so far that were not heap-only; the sessions that made them are gone, so all are counted."""
    time.sleep(1.5)
    counts = "SELECT n_tup_upd - n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'horsies_tasks'"
    return int(server.row(counts)[0])


def beside_a_queue_that_goes_first(bench: Bench) -> None:
    """How many tasks of the lower queue have ended when half of the upper one has."""
    upper, lower = bench.some(UPPER, 400), bench.some(LOWER, 20)
    more: dict[str, Any] = {"share": SHARE} if "share" in CustomQueueConfig.model_fields else {}
    env = with_queues([queue("upper", 1), queue("lower", 10, **more)])
    for _ in bench.times("a queue of higher priority that is never empty", runs=1):
        share = lower_share(bench.server, env, upper, lower)
    what = f"ends of a lower queue that asks for a share of {SHARE:g}, while a higher one is never empty: of all"
    note = "" if more else "there is no such setting"
    bench.report.add("claims_share", what, "", [share], Bar(SHARE / 2), note)


def lower_share(server: Server, env: dict[str, str], upper: int, lower: int) -> float:
    due = server.fill_ahead("noop", upper, LEAD_S, queue_name="'upper'", priority="1")
    server.fill("noop", lower, queue_name="'lower'", priority="10", enqueued_at=f"to_timestamp({due!r})")
    server.settle()
    before = drain.attempts(server)
    with worker(server, *TWO, app=LOCATOR, env=env):
        drain.sleep_until(due)
        server.ring("upper")
        server.ring("lower")
        until(lambda: drain.attempts(server) >= before + lower * 2, "a share of a lower queue", every_s=0.01)
        of_lower, ended = server.row(_SHARE)
    server.clear()
    return float(of_lower / max(1, ended))


# Of what ended while both queues had tasks: the lower one may run dry.
_SHARE = """
    WITH ended AS (
        SELECT queue_name FROM horsies_tasks WHERE status = 'COMPLETED'
          AND completed_at <= COALESCE((SELECT max(completed_at) FROM horsies_tasks WHERE queue_name = 'lower'), now())
    )
    SELECT count(*) FILTER (WHERE queue_name = 'lower'), count(*) FROM ended
"""
