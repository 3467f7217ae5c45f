"""What is wrong now, in words: a judgement of a snapshot, without any I/O. The worst comes first.

The conditions are those that an operator would be woken up for, or would want to know when looking: nobody serves a
queue, workers have too much to do, claims of workers that are gone, schedules that are late, a server in trouble.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from horsies.core.models.monitoring.cluster import QueueInfo, ScheduleStateInfo, Snapshot, WorkerStateInfo
from horsies.core.text import count, duration
from horsies.core.types import TaskStatus

WAITS_LONG_S = 60.0  # a task that has been due for so long
WAITS_TOO_LONG_S = 600.0
LATE_S = 60.0  # a schedule
BUSY = 0.95  # of the processes that could run a task
CPU_PERCENT = 95.0
MEMORY_PERCENT = 90.0
QUEUE_USAGE = 0.5  # of the server's notifications
TRANSACTION_S = 3_600.0
FAILING, LEAST_FAILED = 0.2, 10
MOST_NAMED = 5

Level: TypeAlias = Literal["bad", "warn"]


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that is wrong: what kind of thing, about what, and a sentence."""

    level: Level
    kind: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """What live workers can run and do run. `processes` and `busy` count child processes; a process with async tasks
    may run many at the same time."""

    live: int = 0
    silent: int = 0
    processes: int = 0
    busy: int = 0
    running: int = 0
    claimed: int = 0
    unknown: int = 0  # live workers that have not reported yet

    @property
    def utilization(self) -> float | None:
        """The part of the processes that are busy; None if there are none."""
        return self.busy / self.processes if self.processes else None


def capacity(workers: Sequence[WorkerStateInfo]) -> Capacity:
    live = [worker for worker in workers if worker.is_live]
    return Capacity(
        live=len(live),
        silent=len(workers) - len(live),
        processes=sum(worker.processes or 0 for worker in live),
        busy=sum(min(worker.tasks_running or 0, worker.processes or 0) for worker in live),
        running=sum(worker.tasks_running or 0 for worker in live),
        claimed=sum(worker.tasks_claimed or 0 for worker in live),
        unknown=sum(worker.processes is None for worker in live),
    )


def judge(snapshot: Snapshot, held: Mapping[str, int] | None = None) -> list[Alert]:
    """All that is wrong. `held` says how many tasks each worker holds, also one that is not registered any more."""
    found = [
        *_queues(snapshot),
        *_claims(snapshot, held or {}),
        *_workers(snapshot.workers),
        *_schedules(snapshot.schedules),
        *_failures(snapshot),
        *_server(snapshot),
        *_missing(snapshot),
    ]
    return sorted(found, key=lambda alert: alert.level != "bad")


def _queues(snapshot: Snapshot) -> Iterator[Alert]:
    for queue in snapshot.queues:
        waited = queue.oldest_due_seconds
        if queue.due <= 0 or waited is None:
            continue
        if queue.live_workers == 0:
            waiting = count(queue.due, "task")
            yield Alert(
                "bad", "no worker", queue.name, f"queue {queue.name}: {waiting} due, and no live worker serves it"
            )
        elif waited > WAITS_LONG_S:
            level: Level = "bad" if waited > WAITS_TOO_LONG_S else "warn"
            yield Alert(level, *_late(queue, waited, [one for one in snapshot.workers if queue.name in one.queues]))


def _late(queue: QueueInfo, waited: float, workers: Sequence[WorkerStateInfo]) -> tuple[str, str, str]:
    said = f"queue {queue.name}: the oldest task has been due for {duration(waited)}"
    limit = queue.max_concurrency
    if limit == 0:
        return "paused", queue.name, f"{said}, and the queue is paused"
    if limit is not None and queue.claimed + queue.running >= limit:
        return "at limit", queue.name, f"{said}, and its limit of {limit} is reached"
    found = capacity(workers)
    if (used := found.utilization) is not None and used >= BUSY:
        return "overload", queue.name, f"{said}, and all {found.processes} processes of its workers are busy"
    return "waiting long", queue.name, f"{said}, though its workers have room"


def _claims(snapshot: Snapshot, held: Mapping[str, int]) -> Iterator[Alert]:
    """Tasks of workers that are not live: nobody works on them until they are recovered."""
    silences = {worker.worker_id: worker.silence_seconds for worker in snapshot.workers if not worker.is_live}
    known = {worker.worker_id for worker in snapshot.workers}
    for worker_id, number in sorted(held.items()):
        tasks = count(number, "task")
        if worker_id in silences:
            silence = duration(silences[worker_id])
            yield Alert(
                "bad", "stale claims", worker_id, f"worker {worker_id}: silent for {silence}, and holds {tasks}"
            )
        elif worker_id not in known and "workers" not in snapshot.missing:
            yield Alert("bad", "stale claims", worker_id, f"worker {worker_id}: not registered, and holds {tasks}")


def _workers(workers: Sequence[WorkerStateInfo]) -> Iterator[Alert]:
    if silent := [worker.worker_id for worker in workers if not worker.is_live]:
        more = f" and {len(silent) - MOST_NAMED} more" if len(silent) > MOST_NAMED else ""
        named = ", ".join(silent[:MOST_NAMED]) + more
        yield Alert("warn", "silent", named, f"{count(len(silent), 'registered worker')} silent: {named}")
    for worker in workers:
        if not worker.is_live:
            continue
        if (worker.cpu_percent or 0) >= CPU_PERCENT:
            said = f"worker {worker.worker_id}: its supervisor uses {worker.cpu_percent:.0f}% of a processor"
            yield Alert("warn", "overload", worker.worker_id, said)
        if (used := memory_percent(worker)) >= MEMORY_PERCENT:
            said = f"worker {worker.worker_id}: it uses {used:.0f}% of the memory of its machine"
            yield Alert("warn", "overload", worker.worker_id, said)


def memory_percent(worker: WorkerStateInfo) -> float:
    """Of the machine's memory, with its children. A worker reports the percentage of its supervisor alone."""
    own, percent = worker.memory_usage_mb, worker.memory_percent
    if not own or not percent:
        return 0.0
    return percent * (own + (worker.children_memory_mb or 0.0)) / own


def _schedules(schedules: Sequence[ScheduleStateInfo]) -> Iterator[Alert]:
    for schedule in schedules:
        if schedule.is_active and not schedule.paused and schedule.lag_seconds > LATE_S:
            said = f"schedule {schedule.name}: {duration(schedule.lag_seconds)} late (does a scheduler run?)"
            yield Alert("warn", "late schedule", schedule.name, said)


def _failures(snapshot: Snapshot) -> Iterator[Alert]:
    ended = [one for one in snapshot.task_counts if one.status in (TaskStatus.COMPLETED, TaskStatus.FAILED)]
    failed = sum(one.count for one in ended if one.status is TaskStatus.FAILED)
    total = sum(one.count for one in ended)
    if failed >= LEAST_FAILED and failed >= FAILING * total:
        within = duration(snapshot.ended_window_seconds)
        said = f"{failed:,} of {total:,} tasks that ended within {within} have failed ({failed / total:.0%})"
        yield Alert("warn", "failing", "tasks", said)


def _server(snapshot: Snapshot) -> Iterator[Alert]:
    facts = snapshot.database
    if facts.notification_queue_usage >= QUEUE_USAGE:
        said = f"the server's notification queue is {facts.notification_queue_usage:.0%} full"
        yield Alert("bad", "notifications", "server", said)
    if (facts.oldest_transaction_seconds or 0) > TRANSACTION_S:
        said = (
            f"a transaction has been open for {duration(facts.oldest_transaction_seconds or 0)}: tables cannot shrink"
        )
        yield Alert("warn", "long transaction", "server", said)


def _missing(snapshot: Snapshot) -> Iterator[Alert]:
    for part, reason in snapshot.missing.items():
        yield Alert("warn", "not read", part, f"{part} could not be read: {reason}")
