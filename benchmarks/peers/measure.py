"""Drain, enqueue and latency of one contender, by the same definitions for all.

- drain: tasks that were sent beforehand, divided by the time from the first start of user code (by its own mark) until
  all are recorded as finished in the system's own store, as seen from outside;
- enqueue: one producer, one task after the other, each committed (or accepted) before the next; and all by one call;
- start: from the command of a worker until one task, which waits already, is recorded as finished, with the CPU of all
  its processes; their memory after some more tasks; and the wall time of an interpreter that imports what an app needs;
- latency: an idle system, one task at a time, from before the send to the start of user code, and to the moment the
  sender has the result.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic_ns

from benchmarks.peers.catalog import Contender, Settings
from benchmarks.peers.figures import Samples
from benchmarks.peers.lab import Lab, Sender, Store
from benchmarks.processes import finished, memory, until, watched

LOOK_S = 0.02
LAST_LOOK_S = 0.003
SOME = 200  # tasks before the memory of a worker is measured


def trial(lab: Lab, contender: Contender, settings: Settings, tasks: int) -> float:
    """The drain rate of one choice of settings, with fewer tasks."""
    store = lab.fresh(contender)
    try:
        with lab.sender(contender, store) as sender:
            sender.order("install")
            sender.order("many", settings, count=tasks)
        return drain(lab, contender, store, settings, tasks)
    finally:
        store.close()


@dataclass(frozen=True)
class Round:
    """What one round takes: tasks to drain, seconds to send one by one, and tasks for the latency."""

    number: int
    tasks: int
    seconds: float
    pings: int


def one_round(lab: Lab, contender: Contender, settings: Settings, plan: Round, into: Samples) -> None:
    """Everything once, in a fresh database."""
    store, number = lab.fresh(contender), plan.number
    try:
        with lab.sender(contender, store) as sender:
            sender.order("install")
            if contender.calm is not None:
                into["one_by_one"][number] = [rate(sender.order("one_by_one", settings, seconds=plan.seconds))]
                store.clear()
            filled = rate(sender.order("many", settings, count=plan.tasks))
            if contender.calm is not None and contender.has_bulk:
                into["bulk"][number] = [filled]
            into["drain"][number] = [drain(lab, contender, store, settings, plan.tasks)]
            if contender.calm is not None:
                for key, value in begin(lab, contender, store, sender, contender.calm).items():
                    into[key][number] = [value]
                lab.marks.wipe()
                with lab.worker(contender, store, contender.calm):
                    answers = contender.answer != "none"
                    times = sender.order("ping", contender.calm, count=plan.pings, answers=answers)
                for key, seconds in (("start", times["starts"]), ("end", times["ends"])):
                    into[key][number] = [1000 * one for one in seconds]
    finally:
        store.close()


def rate(sent: Mapping[str, float]) -> float:
    return sent["count"] / sent["seconds"]


def begin(lab: Lab, contender: Contender, store: Store, sender: Sender, settings: Settings) -> dict[str, float]:
    """One start of a worker, and of an interpreter that imports the library."""
    store.clear()
    sender.order("many", settings, count=1)
    what = f"{contender.title}: first task"
    with lab.worker(contender, store, settings, waits=False) as processes:
        first = watched(processes, lambda: store.is_done(1, settings), what)
        sender.order("many", settings, count=SOME)
        until(lambda: store.is_done(1 + SOME, settings), processes, f"{contender.title}: more tasks")
        pss_mb = memory([process for one in processes for process in one.tree()]).pss
    store.clear()
    imported, _ = finished([sys.executable, "-c", contender.imports], lab.environment(store, settings, lab.home))
    return {"first": first.wall_s, "cpu": first.cpu_s, "import": imported.wall_s, "memory": pss_mb}


def drain(lab: Lab, contender: Contender, store: Store, settings: Settings, tasks: int) -> float:
    """Tasks per second from the first start of user code until all are recorded as finished."""
    store.settle()
    lab.marks.wipe()
    with lab.worker(contender, store, settings) as processes:
        until(lambda: not lab.marks.missing(tasks), processes, f"{contender.title}: all started", LOOK_S)
        until(lambda: store.is_done(tasks, settings), processes, f"{contender.title}: all finished", LAST_LOOK_S)
        end = monotonic_ns()
    return tasks / ((end - lab.marks.first(tasks)) / 1e9)
