"""What is wrong now, in words: a judgement of a snapshot, without any I/O. The worst comes first.

The conditions are those that an operator would be woken up for, or would want to know when looking: nobody serves a
queue, workers have too much to do, claims of workers that are gone, schedules that are late, a server in trouble.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from horsies.core.models.monitoring.cluster import (
    Alert,
    AlertLevel,
    Explanation,
    QueueInfo,
    ScheduleStateInfo,
    Snapshot,
    Why,
    WorkerStateInfo,
)
from horsies.core.store.defaults import EARLY
from horsies.core.store.troubles import StoppedWorkflows
from horsies.core.text import counted, duration, some_of
from horsies.core.types import TaskStatus, WorkflowStatus

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
RUNS_LONG_S = 60.0  # a task that has been running for less is never too slow
USUAL = 0.95  # so many of the runs of a name are its usual ones
UNUSUAL = 5.0  # times as long as them
RUNS_UNKNOWN_S = 600.0  # of a name that has never ended


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


@dataclass(frozen=True, slots=True)
class LongRun:
    """A task that has been running for a while, and how long its name usually runs at most, if that is known."""

    task_id: str
    task_name: str
    worker_id: str
    seconds: float
    usual_seconds: float | None


@dataclass(frozen=True, slots=True)
class Troubles:
    """What a snapshot does not know: how many tasks each worker holds, also one that is not registered any more; how
    many tasks ended badly in the last hour according to the statistics; workflows that failed in the last hour or were
    paused by an error; tasks of live workers that have been running for a while; and what could not be read."""

    held: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0
    expired: int = 0
    lost: int = 0
    stopped: Mapping[WorkflowStatus, StoppedWorkflows] = field(default_factory=dict)
    running: Sequence[LongRun] = ()
    missing: Mapping[str, str] = field(default_factory=dict)


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


def judge(
    snapshot: Snapshot,
    held: Mapping[str, int] | None = None,
    troubles: Troubles | None = None,
    reasons: Mapping[str, Explanation] | None = None,
) -> list[Alert]:
    """All that is wrong. `held` says how many tasks each worker holds, also one that is not registered any more;
    `reasons` say why the oldest task of a queue waits. Without `troubles` only what a snapshot knows is judged."""
    found = [
        *_queues(snapshot, reasons or {}),
        *_claims(snapshot, held or {}),
        *_workers(snapshot.workers),
        *_schedules(snapshot.schedules),
        *(_failures(snapshot) if troubles is None else _bad_ends(snapshot, troubles)),
        *([] if troubles is None else _troubles(snapshot, troubles)),
        *_server(snapshot),
        *_missing({**snapshot.missing, **({} if troubles is None else troubles.missing)}),
    ]
    return sorted(found, key=lambda alert: alert.level != "bad")


def late_queues(snapshot: Snapshot) -> list[QueueInfo]:
    """Queues that somebody serves, and in which a task has been due for long nevertheless."""
    return [
        queue
        for queue in snapshot.queues
        if queue.due > 0 and queue.live_workers and (queue.oldest_due_seconds or 0) > WAITS_LONG_S
    ]


def _queues(snapshot: Snapshot, reasons: Mapping[str, Explanation]) -> Iterator[Alert]:
    late = {queue.name for queue in late_queues(snapshot)}
    for queue in snapshot.queues:
        waited = queue.oldest_due_seconds
        if queue.due <= 0 or waited is None:
            continue
        if queue.live_workers == 0:
            lacks = "no worker that knows them has started" if queue.name == EARLY else "no live worker serves it"
            said = f"queue {queue.name}: {counted(queue.due, 'task')} due, and {lacks}"
            yield Alert("bad", "no worker", queue.name, said, queue.oldest_due_task_id)
        elif queue.name in late:
            why = reasons.get(queue.name)
            is_bad = waited > WAITS_TOO_LONG_S or (why is not None and why.why is Why.NO_WORKER_KNOWS_TASK)
            workers = [one for one in snapshot.workers if queue.name in one.queues]
            level: AlertLevel = "bad" if is_bad else "warn"
            yield Alert(level, *_late(queue, waited, workers, why), queue.oldest_due_task_id)


def _late(
    queue: QueueInfo, waited: float, workers: Sequence[WorkerStateInfo], why: Explanation | None
) -> tuple[str, str, str]:
    said = f"queue {queue.name}: the oldest task has been due for {duration(waited)}"
    if why is not None and why.why is Why.NO_WORKER_KNOWS_TASK:
        return "unknown task", queue.name, f"{said}: no live worker of the queue knows {why.facts.get('task_name')}"
    limit = queue.max_concurrency
    if limit == 0:
        return "paused", queue.name, f"{said}, and the queue is paused"
    if limit is not None and queue.claimed + queue.running >= limit:
        return "at limit", queue.name, f"{said}, and its limit of {limit} is reached"
    found = capacity(workers)
    if (used := found.utilization) is not None and used >= BUSY:
        return "overload", queue.name, f"{said}, and all {found.processes} processes of its workers are busy"
    if why is not None and why.why not in (Why.IN_LINE, Why.ENDED):
        return "waiting long", queue.name, f"{said}: {why.message}"
    return "waiting long", queue.name, f"{said}, though its workers have room"


def _claims(snapshot: Snapshot, held: Mapping[str, int]) -> Iterator[Alert]:
    """Tasks of workers that are not live: nobody works on them until they are recovered."""
    silences = {worker.worker_id: worker.silence_seconds for worker in snapshot.workers if not worker.is_live}
    known = {worker.worker_id for worker in snapshot.workers}
    for worker_id, number in sorted(held.items()):
        tasks = counted(number, "task")
        if worker_id in silences:
            silence = duration(silences[worker_id])
            yield Alert(
                "bad", "stale claims", worker_id, f"worker {worker_id}: silent for {silence}, and holds {tasks}"
            )
        elif worker_id not in known and "workers" not in snapshot.missing:
            yield Alert("bad", "stale claims", worker_id, f"worker {worker_id}: not registered, and holds {tasks}")


def _workers(workers: Sequence[WorkerStateInfo]) -> Iterator[Alert]:
    if silent := [worker.worker_id for worker in workers if not worker.is_live]:
        named = some_of(silent, MOST_NAMED)
        yield Alert("warn", "silent", named, f"{counted(len(silent), 'registered worker')} silent: {named}")
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


def _bad_ends(snapshot: Snapshot, troubles: Troubles) -> Iterator[Alert]:
    """Tasks that failed or expired within an hour: the statistics have all of them, up to a minute late; the snapshot
    has the newest, at once."""
    counts = dict.fromkeys(TaskStatus, 0)
    for one in snapshot.task_counts:
        counts[one.status] = counts.get(one.status, 0) + one.count
    if troubles.lost:
        are = "was" if troubles.lost == 1 else "were"
        said = f"{counted(troubles.lost, 'task')} {are} lost with a worker that crashed in the last hour"
        yield Alert("bad", "lost", "tasks", said)
    failed = max(counts[TaskStatus.FAILED], troubles.failed)
    if many := list(_failures(snapshot)):
        yield from many
    elif failed > troubles.lost:
        yield Alert("warn", "failed", "tasks", f"{counted(failed, 'task')} failed in the last hour")
    if expired := max(counts[TaskStatus.EXPIRED], troubles.expired):
        yield Alert("warn", "expired", "tasks", f"{counted(expired, 'task')} expired in the last hour, without a run")


def _troubles(snapshot: Snapshot, troubles: Troubles) -> Iterator[Alert]:
    yield from _workflows(snapshot, troubles.stopped)
    if paused := [one.name for one in snapshot.schedules if one.paused]:
        said = f"{counted(len(paused), 'schedule')} paused: {some_of(paused, MOST_NAMED)}"
        yield Alert("warn", "paused schedule", some_of(paused, MOST_NAMED), said)
    slow = [run for run in troubles.running if is_unusual(run)]
    for run in sorted(slow, key=lambda run: -run.seconds)[:MOST_NAMED]:
        usual = "and none has ended in the last day" if run.usual_seconds is None else _usually(run.usual_seconds)
        said = f"{run.task_name} has been running for {duration(run.seconds)}, {usual}"
        yield Alert("warn", "long run", run.task_name, said, run.task_id)


def is_unusual(run: LongRun) -> bool:
    """Whether a task has been running for much longer than tasks of its name do."""
    if run.usual_seconds is None:
        return run.seconds >= RUNS_UNKNOWN_S
    return run.seconds >= max(RUNS_LONG_S, UNUSUAL * run.usual_seconds)


def _usually(seconds: float) -> str:
    return f"usually at most {duration(seconds)}" if seconds >= 1 else "usually less than a second"


def _workflows(snapshot: Snapshot, stopped: Mapping[WorkflowStatus, StoppedWorkflows]) -> Iterator[Alert]:
    by_error = stopped.get(WorkflowStatus.PAUSED)
    if by_error is not None:
        said = f"{counted(by_error.number, 'workflow')} paused by an error: {_last(by_error)}"
        yield Alert("bad", "stopped workflow", _subject(by_error), said, workflow_id=_only(by_error))
    by_people = snapshot.workflow_counts.get("PAUSED", 0) - (0 if by_error is None else by_error.number)
    if by_people > 0:
        yield Alert("warn", "paused workflow", "workflows", f"{counted(by_people, 'workflow')} paused")
    if (failed := stopped.get(WorkflowStatus.FAILED)) is not None:
        said = f"{counted(failed.number, 'workflow')} failed in the last hour: {_last(failed)}"
        yield Alert("warn", "failed workflow", _subject(failed), said, workflow_id=_only(failed))


def _last(stopped: StoppedWorkflows) -> str:
    code = "" if stopped.error_code is None else f" with {stopped.error_code}"
    return f"{'' if stopped.number == 1 else 'the last is '}{stopped.name}{code}"


def _subject(stopped: StoppedWorkflows) -> str:
    return stopped.name if stopped.number == 1 else "workflows"


def _only(stopped: StoppedWorkflows) -> str | None:
    return stopped.workflow_id if stopped.number == 1 else None


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


def _missing(missing: Mapping[str, str]) -> Iterator[Alert]:
    for part, reason in missing.items():
        yield Alert("warn", "not read", part, f"{part} could not be read: {reason}")
