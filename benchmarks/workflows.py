"""How fast workflows start and run, by the times that stand in their rows.

They are started by a program of its own (`python -m benchmarks.workflows SHAPE SIZE`) while no worker runs, their first
tasks put off; then a worker is started, and when it is idle they fall due together. The rate: all nodes (elements of a
map included) divided by the time from the begin of the first claim to the begin of the last transaction that ended a
workflow.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from benchmarks.bench import Bench
from benchmarks.drain import READY_S, attempts, sleep_until
from benchmarks.processes import TWO, Failed, finished, until, worker
from benchmarks.report import Bar, ratios
from benchmarks.server import Server
from horsies import WorkflowSpec, from_node

FAR_S = 3_600.0
SETTLE_S = 1.0
AT_ONCE = 16  # starts under way at a time
Spec: TypeAlias = WorkflowSpec[Any]


class Start(NamedTuple):
    """What the program that started them says: how many nodes, and the seconds of the starts alone."""

    nodes: int
    seconds: float


class Run(NamedTuple):
    """One run: how many nodes each second, and what each cost."""

    nodes: int
    rate: float
    cpu_us: dict[str, float]
    wal_bytes: float

    def __str__(self) -> str:
        spent = ", ".join(f"{part} {value:.0f}" for part, value in self.cpu_us.items())
        return f"{self.rate:,.0f} nodes/s; µs for each node: {spent}; bytes of WAL: {self.wal_bytes:,.0f}"


def fan_outs(bench: Bench) -> None:
    """One node, many that wait for it, one that waits for all: wide and ten times narrower, turn by turn."""
    wide, narrow = bench.tasks // 2, max(10, bench.tasks // 20)
    runs: list[Run] = []
    small: list[Run] = []
    for _ in bench.times(f"fan-out of {wide:,} and of {narrow:,} nodes"):
        small.append(_ran(bench, "fan_out", narrow))
        runs.append(_ran(bench, "fan_out", wide))
    rates, usual = [run.rate for run in runs], [run.rate for run in small]
    add = bench.report.add
    what = f"workflow: one node, then {wide:,} at once, then one that waits for all of them"
    add("fan_out", what, "nodes/s", rates, Bar(5_000))
    what = f"… time for each node, of that with {narrow:,} at once"
    add("fan_out_ratio", what, "", ratios(usual, rates), Bar(1.5, "under"))
    for part in runs[0].cpu_us:
        add(f"fan_out_cpu_{part}", f"… processor time for each node, {part}", "µs", [run.cpu_us[part] for run in runs])
    add("fan_out_wal", "… write-ahead log for each node", "bytes", [run.wal_bytes for run in runs])


def graphs(bench: Bench) -> None:
    """Workflows of other shapes."""
    wide, long, many = bench.tasks // 2, bench.tasks // 10, bench.tasks // 40
    for shape, size, what in (
        ("mapped", wide, f"workflow: a map over a list of {wide:,}"),
        ("chain", long, f"workflow: a chain of {long:,}, each node waits for the one before"),
        ("diamonds", many, f"{many:,} workflows at once, each a diamond of 4 nodes"),
    ):
        runs = [_ran(bench, shape, size) for _ in bench.times(what.replace("workflow: ", ""))]
        bench.report.add(shape, what, "nodes/s", [run.rate for run in runs])


def starts(bench: Bench) -> None:
    size = bench.tasks // 2
    found: list[float] = []
    for _ in bench.times(f"start of {size:,} nodes"):
        found.append(start(bench.server, "roots", size).seconds)
        bench.server.clear()
    what = f"start of a workflow of {size:,} nodes, all with their tasks, into one that waits for them"
    bench.report.add("start", what, "s", found, Bar(2, "under"))


def _ran(bench: Bench, shape: str, size: int) -> Run:
    run = measure(bench.server, shape, size, *TWO)
    bench.say(f"{shape} of {size:,}: {run}")
    return run


def measure(server: Server, shape: str, size: int, *options: str) -> Run:
    """Start workflows of this shape and let one worker run them; the tables are empty afterwards."""
    nodes = start(server, shape, size).nodes
    server.put_off(FAR_S)
    server.settle()
    with worker(server, *options) as running:
        time.sleep(SETTLE_S)
        due = server.put_off(READY_S)
        idle, wal = running.cpu(), server.wal_bytes()
        sleep_until(due)
        server.ring()
        # Asking must cost next to nothing: the machine is busy being measured.
        until(lambda: not server.row(IS_RUNNING)[0], [running], "workflows", 0.05, progress=lambda: attempts(server))
        spent, wal = running.cpu().since(idle), server.wal_bytes() - wal
    seconds, done = server.row(_SPAN)
    if done != nodes:
        raise Failed(f"{done} of {nodes} nodes are completed: this is not a measurement")
    server.clear()
    cpu_us = {name: value * 1e6 for name, value in spent.per(nodes).items()}
    return Run(nodes, nodes / float(seconds), cpu_us, wal / nodes)


def start(server: Server, shape: str, size: int) -> Start:
    """The workflows are there afterwards, without what only warmed the program up."""
    _, printed = finished([sys.executable, "-m", "benchmarks.workflows", shape, str(size)])
    server.forget_workflows("one")
    return Start(*json.loads(printed))


IS_RUNNING = "SELECT EXISTS (SELECT FROM horsies_workflows WHERE status = 'RUNNING')"
_SPAN = """
    SELECT (SELECT extract(epoch FROM max(completed_at)) FROM horsies_workflows WHERE status = 'COMPLETED')
           - (SELECT extract(epoch FROM min(claimed_at)) FROM horsies_tasks),
           (SELECT count(*) FROM horsies_workflow_tasks WHERE status = 'COMPLETED')
"""


# The program. A shape makes its specs, and says how many nodes they have together.


def fan_out(width: int) -> tuple[list[Spec], int]:
    """One node, `width` that wait for it, and one that waits for all of those."""
    from benchmarks.app import app, noop

    first = noop.node()(n=0)
    middle = [noop.node(waits_for=[first])(n=n) for n in range(width)]
    last = noop.node(waits_for=middle)(n=width)
    return [app.workflow("fan_out", [first, *middle, last], output=last, definition_key="bench.fan_out")], width + 2


def roots(width: int) -> tuple[list[Spec], int]:
    """`width` nodes that wait for nothing, and one that waits for all of them: a start writes each with its task."""
    from benchmarks.app import app, noop

    first = [noop.node()(n=n) for n in range(width)]
    last = noop.node(waits_for=first)(n=width)
    return [app.workflow("roots", [*first, last], output=last, definition_key="bench.roots")], width + 1


def chain(length: int) -> tuple[list[Spec], int]:
    """Each node waits for the one before it."""
    from benchmarks.app import app, noop

    nodes = [noop.node()(n=0)]
    for n in range(1, length):
        nodes.append(noop.node(waits_for=[nodes[-1]])(n=n))
    return [app.workflow("chain", nodes, output=nodes[-1], definition_key="bench.chain")], length


def diamonds(count: int) -> tuple[list[Spec], int]:
    """So many workflows of four nodes: one, two that wait for it, one that waits for both."""
    from benchmarks.app import app, noop

    top = noop.node()(n=0)
    left, right = (noop.node(waits_for=[top])(n=n) for n in (1, 2))
    bottom = noop.node(waits_for=[left, right])(n=3)
    spec = app.workflow("diamond", [top, left, right, bottom], output=bottom, definition_key="bench.diamond")
    return [spec] * count, 4 * count


def mapped(width: int) -> tuple[list[Spec], int]:
    """A list of `width` numbers, a task for each, and a node that waits for all of them. Elements count as nodes."""
    from benchmarks.app import app, listing, noop

    source = listing.node()(n=width)
    over = noop.map_node(over=from_node(source))()
    last = noop.node(waits_for=[over])(n=width)
    return [app.workflow("mapped", [source, over, last], output=last, definition_key="bench.mapped")], width + 3


SHAPES: dict[str, Callable[[int], tuple[list[Spec], int]]] = {
    "fan_out": fan_out,
    "roots": roots,
    "chain": chain,
    "diamonds": diamonds,
    "mapped": mapped,
}


async def main(shape: str, size: int) -> Start:
    from benchmarks.app import app, noop

    specs, nodes = SHAPES[shape](size)
    # What every producer has done once: the connections are open, and statements have been prepared.
    (await app.workflow("one", [noop.node()(n=0)], definition_key="bench.one").start_async()).unwrap()
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(spec: Spec) -> None:
        async with turn:
            (await spec.start_async()).unwrap()

    begin = time.perf_counter()
    await asyncio.gather(*(one(spec) for spec in specs))
    seconds = time.perf_counter() - begin
    await app.get_broker().close_async()
    return Start(nodes, seconds)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], int(sys.argv[2])))))
