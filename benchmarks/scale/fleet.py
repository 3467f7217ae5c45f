"""A send to an idle fleet: how many workers look, and how long the result takes."""

from __future__ import annotations

import time
from typing import NamedTuple

import psycopg

from benchmarks.figures import Bench
from benchmarks.latency import WARM_UP
from benchmarks.report import Bar
from benchmarks.scale import programs
from benchmarks.scale.crew import crew
from benchmarks.scale.sizes import queue, settings, with_queues
from benchmarks.scale.watch import watching

PINGS = 100
SETTLE_S = 3.0
MANY = 1_000
OTHERS = 4
CHANNELS = ("task_new", "task_queue_default", "task_done")
MORE = 1.5  # times what one worker does: it looks again now and then, and so do others


class Sent(NamedTuple):
    """The median from `send` to the result; claims and statements for each send."""

    result_ms: float
    claims: float
    statements: float


def fleet(bench: Bench) -> None:
    pings = bench.some(PINGS, 5)
    found: dict[int, Sent] = {}
    for _ in bench.times(f"sends to fleets of 1 to {bench.workers} idle workers", runs=1):
        with crew(bench.server, 0) as workers:
            for size in sorted({min(size, bench.workers) for size in (1, 8, bench.workers)}):
                workers.grow(size)
                found[size] = _of_one_size(bench, size, pings)
    claims = {size: one.claims for size, one in found.items()}
    spoken = {size: one.statements for size, one in found.items()}
    delays = {size: one.result_ms for size, one in found.items()}
    add = bench.report.add
    shown = sorted(set(found) - {1})
    add("fleet_claims_1", f"claims for each send, {_idle(1)}", "", [claims[1]])
    for size in shown:
        what, note = f"… {_idle(size)}, of that", f"{claims[size]:.1f} claims"
        add(f"fleet_claims_{size}", what, "", [claims[size] / claims[1]], Bar(MORE, "at most"), note)
    others(bench, pings, claims[1])
    add("fleet_statements_1", f"statements for each send, until the result is there, {_idle(1)}", "", [spoken[1]])
    for size in shown:
        what, note = f"… {_idle(size)}, of that", f"{spoken[size]:.1f} statements"
        add(f"fleet_statements_{size}", what, "", [spoken[size] / spoken[1]], Bar(MORE, "at most"), note)
    add("fleet_p50_1", f"`send` to the result: p50, {_idle(1)}", "ms", [delays[1]])
    for size in shown:
        what, slower = f"… {_idle(size)}, of that", delays[size] / delays[1]
        add(f"fleet_p50_{size}", what, "", [slower], Bar(MORE, "at most"), f"{delays[size]:.1f} ms")
    notifications(bench)


def _of_one_size(bench: Bench, size: int, pings: int) -> Sent:
    time.sleep(SETTLE_S)
    p50 = programs.ping(pings)
    with watching(bench.server) as seen:
        programs.ping(pings)
    sent = pings + WARM_UP
    found = Sent(p50, len(seen.claims) / sent, len(seen.statements) / sent)
    bench.server.clear()
    bench.say(f"{_idle(size)}: {p50:.1f} ms to the result, {found.claims:.1f} claims a send")
    return found


def others(bench: Bench, pings: int, alone: float) -> None:
    """One worker serves the queue, four serve another."""
    both = with_queues([queue("theirs"), queue("ours")])
    for _ in bench.times("sends past workers of another queue", runs=1):
        with crew(bench.server, 1, "--queues", "ours", env=both) as workers:
            workers.grow(1 + OTHERS, "--queues", "theirs", env=both)
            time.sleep(SETTLE_S)
            with watching(bench.server) as seen:
                programs.ping(pings, both)
    bench.server.clear()
    each = len(seen.claims) / (pings + WARM_UP)
    what = f"… one idle worker of the queue and {OTHERS} of another, of that"
    bench.report.add("fleet_others", what, "", [each / alone], Bar(MORE, "at most"), f"{each:.1f} claims")


def notifications(bench: Bench) -> None:
    """On the documented channels, of many tasks that one statement writes. In `always` the documentation promises one
    for each task on each of two channels, with its id."""
    count = bench.some(MANY, 20)
    found: dict[str, int] = {}
    for mode in ("when_waiting", "always"):  # the last one is that of all other parts
        env = settings(notify=mode)
        with crew(bench.server, 1, env=env):
            pass  # a worker records its mode
        for _ in bench.times(f"notifications of a send_many, {mode}", runs=1):
            with psycopg.connect(bench.server.url, autocommit=True) as conn:
                for channel in CHANNELS:
                    conn.execute(f"LISTEN {channel}".encode())
                programs.run("many", count, env=env)
                found[mode] = sum(1 for _ in conn.notifies(timeout=1.0))
        bench.server.clear()
    what = f"notifications for each task of a `send_many` of {count:,}, `always`, as documented"
    bench.report.add("fleet_notifications", what, "", [found["always"] / count], Bar(2.0, "at most"))
    what = "… `when_waiting`, nobody waits"
    bench.report.add("fleet_notifications_spared", what, "", [found["when_waiting"] / count], Bar(0.1, "at most"))


def _idle(size: int) -> str:
    return "1 idle worker" if size == 1 else f"{size} idle workers"
