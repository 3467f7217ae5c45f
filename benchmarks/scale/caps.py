"""Limits: what one costs that never binds, and how much of one that binds is used."""

from __future__ import annotations

from benchmarks import drain
from benchmarks.figures import TWO, Bench
from benchmarks.report import Bar, ratios
from benchmarks.scale.crew import crew
from benchmarks.scale.sizes import LOCATOR, SHORT_S, queue, settings, with_queues
from benchmarks.scale.watch import until
from benchmarks.server import Server

TASKS = 8_000
LEAD_S = 6.0
FREE = 100_000  # a limit that never binds
IN_FLIGHT = 32_000
TIGHT, SHORTS = 4, 1_200
NAME = "capped"
OF_PLAIN, OF_TIGHT = 0.67, 0.9


def caps(bench: Bench) -> None:
    count = bench.some(TASKS, 50)
    plain: list[float] = []
    cluster: list[float] = []
    single: list[float] = []
    crowded: list[float] = []
    for _ in bench.times("drains without a limit and with limits that never bind", runs=max(1, bench.repeat - 1)):
        plain.append(_drained(bench, "no limit", count))
        cluster.append(_drained(bench, "cluster-wide limit", count, settings(cluster_wide_cap=FREE)))
        own = with_queues([queue(NAME, cap=FREE)])
        single.append(_drained(bench, "limit of the queue", count, own, NAME))
        hold(bench.server, bench.some(IN_FLIGHT))
        crowded.append(_drained(bench, "with tasks in flight", count, own, NAME))
    add = bench.report.add
    add("caps_none", f"drain of {count:,} tasks without a limit", "tasks/s", plain)
    what = f"… with a cluster-wide limit of {FREE:,}, of that"
    add("caps_cluster", what, "", ratios(cluster, plain), Bar(OF_PLAIN), _rates(cluster))
    what = f"… with a limit of the queue of {FREE:,}, of that"
    add("caps_queue", what, "", ratios(single, plain), Bar(OF_PLAIN), _rates(single))
    what = f"… the same with {bench.some(IN_FLIGHT):,} tasks in flight elsewhere, of the drain without a limit"
    add("caps_in_flight", what, "", ratios(crowded, plain), Bar(OF_PLAIN), _rates(crowded))
    tight(bench)


def tight(bench: Bench) -> None:
    """Two workers of four children each, and a limit of half of that; beside two of two children without a limit."""
    count = bench.some(SHORTS, 40)
    plain: list[float] = []
    queued: list[float] = []
    cluster: list[float] = []
    most = 0
    for _ in bench.times(f"a limit of {TIGHT} that binds"):
        rate, _most = measure_tight(bench.server, count, TIGHT // 2, with_queues([queue(NAME)]))
        plain.append(rate)
        rate, at_once = measure_tight(bench.server, count, TIGHT, with_queues([queue(NAME, cap=TIGHT)]))
        queued.append(rate)
        most = max(most, at_once)
        rate, at_once = measure_tight(bench.server, count, TIGHT, with_queues([queue(NAME)], cluster_wide_cap=TIGHT))
        cluster.append(rate)
        most = max(most, at_once)
        bench.say(f"{plain[-1]:,.0f}, {queued[-1]:,.0f} and {cluster[-1]:,.0f} tasks/s, {most} at once")
    add, ms = bench.report.add, SHORT_S * 1000
    add("caps_slots", f"tasks of {ms:.0f} ms, two workers of {TIGHT // 2} children, without a limit", "tasks/s", plain)
    allowed = TIGHT / SHORT_S
    what = (
        f"… two workers of {TIGHT} children, a limit of the queue of {TIGHT}: of the {allowed:,.0f} tasks/s it allows"
    )
    add("caps_allowed", what, "", [rate / allowed for rate in queued], Bar(OF_TIGHT), _rates(queued))
    what = "… the same, of those without a limit"
    add("caps_tight", what, "", ratios(queued, plain), Bar(OF_TIGHT))
    what = f"… with a cluster-wide limit of {TIGHT}, of those without a limit"
    add("caps_tight_cluster", what, "", ratios(cluster, plain), Bar(OF_TIGHT), _rates(cluster))
    add("caps_exact", "… most tasks that ran at once", "", [most], Bar(TIGHT, "at most"))


def measure_tight(server: Server, count: int, children: int, env: dict[str, str]) -> tuple[float, int]:
    """By two workers: tasks per second from the first start to the last end, and how many ran at once."""
    with crew(server, 2, "--processes", str(children), env=env):
        server.fill("noop", count, task_name="'short'", queue_name=f"'{NAME}'", priority="1")
        server.ring(NAME)
        until(lambda: bool(server.row(_ENDED)[0] >= count), "tasks under a limit", every_s=0.05)
        seconds, most = server.row(_AT_ONCE)
    server.clear()
    return count / float(seconds), int(most)


def hold(server: Server, count: int) -> None:
    """So many tasks that a worker elsewhere runs, which is alive for all that anyone can tell."""
    server.do(_ELSEWHERE)
    server.fill("noop", count, queue_name=f"'{NAME}'", **_HELD)


def _drained(bench: Bench, what: str, count: int, env: dict[str, str] | None = None, name: str = "") -> float:
    instead = {"queue_name": f"'{name}'", "priority": "1"} if name else {}
    found = drain.measure(
        bench.server, count, *TWO, lead_s=LEAD_S, app=LOCATOR, env=env, queue=name or "default", instead=instead
    )
    bench.server.clear()
    bench.server.do("DELETE FROM horsies_workers WHERE worker_id = 'elsewhere'")
    bench.say(f"{what}: {found}")
    return found.rate


def _rates(rates: list[float]) -> str:
    return ", ".join(f"{rate:,.0f}" for rate in rates) + " tasks/s"


_ENDED = "SELECT count(*) FROM horsies_tasks WHERE status = 'COMPLETED'"
_AT_ONCE = """
    WITH steps AS (
        SELECT started_at AS at, 1 AS change FROM horsies_tasks UNION ALL SELECT completed_at, -1 FROM horsies_tasks
    ), sums AS (SELECT sum(change) OVER (ORDER BY at, change) AS running FROM steps)
    SELECT (SELECT extract(epoch FROM max(completed_at) - min(started_at)) FROM horsies_tasks), max(running) FROM sums
"""
_ELSEWHERE = """
    INSERT INTO horsies_workers (worker_id, hostname, pid, last_heartbeat_at)
    VALUES ('elsewhere', 'elsewhere', 1, now() + interval '1 hour') ON CONFLICT DO NOTHING
"""
_HELD = {
    "status": "'RUNNING'",
    "claimed": "TRUE",
    "claimed_by_worker_id": "'elsewhere'",
    "claim_seq": "1",
    "claimed_at": "now()",
    "started_at": "now()",
    "claim_expires_at": "now() + interval '1 hour'",
}
