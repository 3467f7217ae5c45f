"""The dashboard on a large table (M-95): how long each of its pages takes, what ten people who watch a drain cost it,
and that nobody watching costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks import drain
from benchmarks.figures import TWO, Bench
from benchmarks.process import tree_seconds, worker
from benchmarks.report import Bar, percentiles, ratios
from benchmarks.scale import history, viewers
from benchmarks.scale.board import Board, board
from benchmarks.scale.history import Past
from benchmarks.scale.watch import until
from benchmarks.scale.watch import watching as watching_server
from benchmarks.server import Server

TIMES = 40
PAGE = Bar(150, "under")
KEPT = Bar(0.98)
DRAINED = 20  # so many times the tasks of an ordinary drain: it has to last for some refreshes
LEAD_S = 30.0
NOBODY_S = 5.0
# Ten people: who watches a drain has the overview open, or a list.
WATCHED = ("/",) * 4 + ("/tasks",) * 2 + ("/tasks?status=COMPLETED", "/queues", "/workers", "/workflows")


def web(bench: Bench) -> None:
    try:
        for _ in bench.times(f"a past of {bench.rows:,} tasks", runs=1):
            past = history.fill(bench.server, bench.rows, bench.share)
        pages(bench, past)
        nobody(bench)
        watched_drains(bench)
    finally:
        history.empty(bench.server)


class Looked(NamedTuple):
    """How long one page took each time, in milliseconds, and what that cost in processor time, on average."""

    ms: list[float]
    status: int
    size: int
    cpu_ms: dict[str, float]

    @property
    def is_there(self) -> bool:
        return self.status in (200, 303)

    def __str__(self) -> str:
        cuts = percentiles(self.ms)
        spent = ", ".join(f"{part} {ms:.0f} ms" for part, ms in self.cpu_ms.items())
        said = f"p50 {cuts[50]:.0f} ms; processor time: {spent}; {self.size / 1000:.0f} kB"
        return said if self.is_there else f"{said}; answered {self.status}"


def pages(bench: Bench, past: Past) -> None:
    """Each page alone, again and again, as somebody sees it who asks for it."""
    found: dict[str, Looked] = {}
    for _ in bench.times("every page of the dashboard", runs=1):
        with worker(bench.server, *TWO) as running, board() as seen:
            history.add_snapshots(bench.server, bench.share)
            for name, path in addresses(past, running.worker_id).items():
                found[name] = looked(bench.server, seen, path, bench.some(TIMES, 3))
                bench.say(f"{name}: p95 {percentiles(found[name].ms)[95]:.0f} ms, {found[name]}")
    add = bench.report.add
    for name, one in found.items():
        what = f"dashboard, {bench.rows:,} rows: {name}, p95"
        add(f"web_{'_'.join(name.replace(',', '').split())}", what, "ms", [percentiles(one.ms)[95]], PAGE, str(one))
    broken = [name for name, one in found.items() if not one.is_there]
    add("web_broken", "… pages without an answer", "", [len(broken)], Bar(0, "at most"), ", ".join(broken))


def looked(server: Server, seen: Board, path: str, times: int) -> Looked:
    first = seen.get(path)  # it may open a connection, or read a template
    before = seen.cpu_seconds(), tree_seconds(server.postmaster())
    ms = [seen.get(path).ms for _ in range(times)]
    after = seen.cpu_seconds(), tree_seconds(server.postmaster())
    spent = [1000 * (now - then) / times for now, then in zip(after, before, strict=True)]
    return Looked(ms, first.status, len(first.body), {"dashboard": spent[0], "server": spent[1]})


def addresses(past: Past, worker_id: str) -> Mapping[str, str]:
    """Every screen, and the lists with the filters that are hardest for them."""
    return {
        "overview": "/",
        "overview of a day": "/?window=24h",
        "overview of a week": "/?window=7d",
        "tasks": "/tasks",
        "tasks that failed": "/tasks?status=FAILED",
        "tasks that succeeded": "/tasks?status=COMPLETED",
        "tasks that wait": "/tasks?status=PENDING&sort=next",
        "tasks of a name": "/tasks?name=task-3",
        "tasks of a queue": "/tasks?queue=queue-3",
        "tasks with a code": "/tasks?status=FAILED&code=CODE_3",
        "tasks of a name that there is not": "/tasks?name=no-such-task",
        "tasks that were retried": "/tasks?retried=1",
        "tasks of before yesterday": "/tasks?age=old-1d",
        "tasks by the beginning of an id": f"/tasks?id={past.failed[:8]}",
        "task that succeeded": f"/tasks/{past.completed}",
        "task that failed": f"/tasks/{past.failed}",
        "task that waits": f"/tasks/{past.waiting}",
        "search": f"/find?q={past.failed}",
        "failures": "/failures",
        "queues": "/queues",
        "queue": "/queues/queue-3",
        "workflows": "/workflows",
        "workflows that run": "/workflows?status=RUNNING",
        "workflow of 4 nodes": f"/workflows/{past.small}",
        "workflow of many nodes": f"/workflows/{past.large}",
        "node": f"/workflows/{past.large}/nodes/0",
        "workers": "/workers",
        "worker": f"/workers/{worker_id}?window=7d",
        "schedules": "/schedules",
        "audit": "/audit",
        "audit of a person": "/audit?actor=person-1",
        "dialog, one task": f"/dialogs/cancel-task?id={past.waiting}",
        "dialog, a group": "/dialogs/rerun-group?name=task-1&code=CODE_1",
    }


def watched_drains(bench: Bench) -> None:
    """With viewers and without, turn by turn, and whoever came second comes first the next time."""
    count = bench.some(DRAINED * bench.tasks, 200)
    rates: dict[bool, list[float]] = {True: [], False: []}
    spent: list[float] = []
    seen = viewers.Watched()
    with board() as open_board:
        for turn in bench.times(f"a drain of {count:,} tasks that ten people watch, and one that nobody watches"):
            for is_watched in (True, False) if turn % 2 else (False, True):
                if is_watched:
                    with viewers.watching(open_board.url, WATCHED) as seen:
                        rate, cpu = _drained(bench, open_board, count)
                    spent.append(cpu)
                    bench.say(f"watched: {rate:,.0f} tasks/s, {_said(seen)}, the dashboard used {cpu:.1f} % of a core")
                else:
                    rate, _ = _drained(bench, open_board, count)
                    bench.say(f"not watched: {rate:,.0f} tasks/s")
                rates[is_watched].append(rate)
    add, people = bench.report.add, len(WATCHED)
    what = f"drain of {count:,} tasks while {people} people watch it, of one that nobody watches"
    add("web_watched", what, "", ratios(rates[True], rates[False]), KEPT, _said(seen))
    add("web_watched_cpu", "… processor time of the dashboard meanwhile, of one core", "%", spent)
    add("web_watched_broken", "… refreshes without a page", "", [len(seen.statuses)], Bar(0, "at most"))


def nobody(bench: Bench) -> None:
    """A dashboard that has been looked at, and is not any more: no mark, no session that listens, no statement."""
    for _ in bench.times("a dashboard that nobody looks at", runs=1):
        with board() as seen:
            with viewers.watching(seen.url, WATCHED):
                watched = marks(bench.server)
            until(lambda: marks(bench.server) == (0, 0), "the mark of viewers who have gone", 30)
            time.sleep(1.0)
            with watching_server(bench.server) as asked:
                time.sleep(max(1.0, NOBODY_S * bench.share))
            left = marks(bench.server)
    note = f"while {len(WATCHED)} watched: {watched[0]} and {watched[1]}"
    add = bench.report.add
    add("web_idle_marks", "marks in horsies_waiting while nobody watches", "", [left[0]], Bar(0, "at most"), note)
    add("web_idle_sessions", "… sessions that listen for it", "", [left[1]], Bar(0, "at most"))
    add("web_idle_statements", "… statements of the dashboard", "", [len(asked.statements)], Bar(0, "at most"))


def marks(server: Server) -> tuple[int, int]:
    """How many say that they watch, and how many sessions listen for those who do."""
    return server.row(_MARKS)[0], server.row(_LISTENERS)[0]


def _drained(bench: Bench, seen: Board, count: int) -> tuple[float, float]:
    """The rate, and the processor time of the dashboard in percent of a core, from before its start on."""
    begin, before = time.monotonic(), seen.cpu_seconds()
    rate = drain.measure(bench.server, count, *TWO, lead_s=max(5.0, LEAD_S * bench.share)).rate
    return rate, 100 * (seen.cpu_seconds() - before) / (time.monotonic() - begin)


def _said(seen: viewers.Watched) -> str:
    took = seen.took_s / seen.refreshes * 1000 if seen.refreshes else 0.0
    return f"{seen.events:,} events and {seen.refreshes:,} refreshes of {took:.0f} ms"


_MARKS = "SELECT count(*) FROM horsies_waiting WHERE topic = 'monitor'"
_LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'horsies monitor%%'"
