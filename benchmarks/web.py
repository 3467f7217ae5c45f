"""The dashboard on a large table (M-95): how long each of its pages takes, what ten people who watch a drain cost it,
and that nobody watching costs nothing. It is a real `horsies web` in a process of its own.
"""

from __future__ import annotations

import http.client
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

import psutil

from benchmarks import APP, drain, web_history, web_viewers
from benchmarks.bench import Bench
from benchmarks.processes import TWO, Process, cpu_s, until, worker
from benchmarks.profile import counting
from benchmarks.report import Bar, percentiles, ratios
from benchmarks.server import Server
from benchmarks.web_history import Past

TIMES = 40
PATIENCE_S = 60.0
ADDRESS = re.compile(r"^dashboard: (http://\S+)$", re.MULTILINE)
DRAINED = 20  # so many times the tasks of an ordinary drain: it has to last for some refreshes
LEAD_S = 30.0
NOBODY_S = 5.0
# Ten people: who watches a drain has the overview open, or a list.
WATCHED = ("/",) * 4 + ("/tasks",) * 2 + ("/tasks?status=COMPLETED", "/queues", "/workers", "/workflows")


def web(bench: Bench) -> None:
    try:
        for _ in bench.times(f"a past of {bench.rows:,} tasks", runs=1):
            past = web_history.fill(bench.server, bench.rows, bench.share)
        pages(bench, past)
        nobody(bench)
        watched_drains(bench)
    finally:
        web_history.empty(bench.server)


class Board:
    """The dashboard, and one connection to it."""

    def __init__(self, url: str, process: Process) -> None:
        self.url = url
        self._process = psutil.Process(process.pid)
        self._conn = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)

    def get(self, path: str) -> tuple[int, float]:
        """The status, and the milliseconds until the last byte was there."""
        begin = time.perf_counter()
        self._conn.request("GET", path, headers={"Accept": "text/html"})
        answer = self._conn.getresponse()
        answer.read()
        return answer.status, (time.perf_counter() - begin) * 1000

    def cpu_s(self) -> float:
        return cpu_s(self._process)

    def close(self) -> None:
        self._conn.close()


@contextmanager
def board(server: Server) -> Iterator[Board]:
    """The dashboard of the app, with actions, for as long as the block lasts."""
    command = [sys.executable, "-m", "horsies", "web", APP, "--port", "0", "--enable-actions"]
    process = Process(command, os.environ, server.home)
    try:
        until(lambda: ADDRESS.search(process.log.read_text()), [process], "the dashboard is ready", 0.05)
        found = ADDRESS.search(process.log.read_text())
        assert found is not None
        made = Board(found[1], process)
        yield made
        made.close()
    finally:
        process.stop(PATIENCE_S)


def pages(bench: Bench, past: Past) -> None:
    """Each page alone, again and again, as somebody sees it who asks for it. The slowest is the figure."""
    slowest, name_of_it, broken = 0.0, "", list[str]()
    for _ in bench.times("every page of the dashboard", runs=1):
        with worker(bench.server, *TWO) as running, board(bench.server) as seen:
            web_history.add_snapshots(bench.server, bench.share)
            paths = addresses(past, running.worker_id)
            for name, path in paths.items():
                status, _ = seen.get(path)  # not counted: it may open a connection, or read a template
                cuts = percentiles([seen.get(path)[1] for _ in range(bench.some(TIMES, 3))])
                bench.say(f"{name}: p95 {cuts[95]:.0f} ms, p50 {cuts[50]:.0f} ms; answered {status}")
                slowest, name_of_it = max((slowest, name_of_it), (cuts[95], name))
                if status not in (200, 303):
                    broken.append(name)
    add = bench.report.add
    what = f"dashboard, {bench.rows:,} tasks: the slowest of {len(paths)} pages, p95"
    add("web_slowest", what, "ms", [slowest], Bar(150, "under"), name_of_it)
    add("web_broken", "… pages without an answer", "", [len(broken)], Bar(0, "at most"), ", ".join(broken))


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
    seen = web_viewers.Watched()
    with board(bench.server) as open_board:
        for turn in bench.times(f"a drain of {count:,} tasks that ten people watch, and one that nobody watches"):
            for is_watched in (True, False) if turn % 2 else (False, True):
                if is_watched:
                    with web_viewers.watching(open_board.url, WATCHED) as seen:
                        rate, cpu = _drained(bench, open_board, count)
                    spent.append(cpu)
                    bench.say(f"watched: {rate:,.0f} tasks/s, {_said(seen)}, the dashboard used {cpu:.1f} % of a core")
                else:
                    rate, _ = _drained(bench, open_board, count)
                    bench.say(f"not watched: {rate:,.0f} tasks/s")
                rates[is_watched].append(rate)
    add, people = bench.report.add, len(WATCHED)
    what = f"drain of {count:,} tasks while {people} people watch it, of one that nobody watches"
    add("web_watched", what, "", ratios(rates[True], rates[False]), Bar(0.98), _said(seen))
    add("web_watched_cpu", "… processor time of the dashboard meanwhile, of one core", "%", spent)
    add("web_watched_broken", "… refreshes without a page", "", [len(seen.statuses)], Bar(0, "at most"))


def nobody(bench: Bench) -> None:
    """A dashboard that has been looked at, and is not any more: no mark, no session that listens, no statement."""
    for _ in bench.times("a dashboard that nobody looks at", runs=1):
        with board(bench.server) as seen:
            with web_viewers.watching(seen.url, WATCHED):
                watched = marks(bench.server)
            until(lambda: marks(bench.server) == (0, 0), [], "the mark of viewers who have gone", 0.1, 30)
            time.sleep(1.0)
            with counting(bench.server) as asked:
                time.sleep(max(1.0, NOBODY_S * bench.share))
            left = marks(bench.server)
    note = f"while {len(WATCHED)} watched: {watched[0]} and {watched[1]}"
    add = bench.report.add
    add("web_idle_marks", "marks in horsies_waiting while nobody watches", "", [left[0]], Bar(0, "at most"), note)
    add("web_idle_sessions", "… sessions that listen for it", "", [left[1]], Bar(0, "at most"))
    add("web_idle_statements", "… statements of the dashboard", "", [asked.calls], Bar(0, "at most"))


def marks(server: Server) -> tuple[int, int]:
    """How many say that they watch, and how many sessions listen for those who do."""
    return server.row(_MARKS)[0], server.row(_LISTENERS)[0]


def _drained(bench: Bench, seen: Board, count: int) -> tuple[float, float]:
    """The rate, and the processor time of the dashboard in percent of a core, from before its start on."""
    begin, before = time.monotonic(), seen.cpu_s()
    rate = drain.measure(bench.server, count, *TWO, lead_s=max(5.0, LEAD_S * bench.share)).rate
    return rate, 100 * (seen.cpu_s() - before) / (time.monotonic() - begin)


def _said(seen: web_viewers.Watched) -> str:
    took = seen.took_s / seen.refreshes * 1000 if seen.refreshes else 0.0
    return f"{seen.events:,} events and {seen.refreshes:,} refreshes of {took:.0f} ms"


_MARKS = "SELECT count(*) FROM horsies_waiting WHERE topic = 'monitor'"
_LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'horsies monitor%%'"
