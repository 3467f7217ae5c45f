"""The one read model of the command line and of metrics: queues, tasks, workers, schedules and the server, at one
moment.

Each number is defined only here. The cost depends on the tasks that wait, are in flight, or ended recently (which is
limited), not on the number of tasks that ended long ago. `assemble` only combines what was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from horsies.core.models.app import AppConfig
from horsies.core.monitoring.asking import ask
from horsies.core.monitoring.detail import MOST_SCHEDULES, MOST_WORKERS, firing_schedules, judged
from horsies.core.monitoring.models.answers import MonitoringResult
from horsies.core.monitoring.models.snapshots import DatabaseFacts, QueueInfo, ScheduleStateInfo, Snapshot, TaskCount
from horsies.core.monitoring.models.workers import WorkerStateInfo
from horsies.core.store import monitoring
from horsies.core.store.monitoring import EndedOfLate, InHand, Waiting
from horsies.core.store.tasks import Connection
from horsies.core.types.status import TaskStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

WINDOW = timedelta(hours=1)
MOST_ENDED = 50_000
A_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What the configuration says about a queue."""

    priority: int | None = None
    max_concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Configured:
    """What an application knows in addition to the database: its queues, and the active schedules of its code (None:
    there is no application)."""

    queues: Mapping[str, QueueSettings] = field(default_factory=dict)
    schedules: frozenset[str] | None = None


def configured_by(config: AppConfig | None) -> Configured:
    if config is None:
        return Configured()
    queues = {queue.name: QueueSettings(queue.priority, queue.max_concurrency) for queue in config.queues()}
    return Configured(queues, firing_schedules(config))


async def take_snapshot(broker: PostgresBroker) -> MonitoringResult[Snapshot]:
    """Everything at one moment, by the clock of the database."""
    known = configured_by(None if broker.app is None else broker.app.config)
    return await ask(broker, partial(read_snapshot, configured=known))


async def read_snapshot(conn: Connection, *, configured: Configured) -> Snapshot:
    """The same over a connection, in the caller's transaction."""
    return assemble(
        waiting=await monitoring.waiting(conn),
        in_flight=await monitoring.in_flight(conn),
        ended=await monitoring.ended(conn, WINDOW, most=MOST_ENDED),
        workers=await monitoring.workers(conn, most=MOST_WORKERS),
        schedules=await monitoring.schedules(conn, most=MOST_SCHEDULES),
        workflow_counts=await monitoring.open_workflows(conn),
        database=await monitoring.database(conn),
        configured=configured,
    )


def assemble(
    *,
    waiting: Sequence[Waiting],
    in_flight: Sequence[InHand],
    ended: Sequence[EndedOfLate],
    workers: Sequence[WorkerStateInfo],
    schedules: Sequence[ScheduleStateInfo],
    workflow_counts: Mapping[str, int],
    database: Mapping[str, Any],
    configured: Configured,
) -> Snapshot:
    facts = dict(database)
    return Snapshot(
        taken_at=facts.pop("taken_at"),
        queues=tuple(_queues(waiting, in_flight, ended, workers, configured.queues)),
        task_counts=tuple(_task_counts(waiting, in_flight, ended)),
        ended_window_seconds=_reach(ended),
        workers=tuple(workers),
        schedules=judged(schedules, configured.schedules),
        workflow_counts=dict(workflow_counts),
        database=DatabaseFacts(**facts),
    )


def settings_of_workers(workers: Iterable[WorkerStateInfo]) -> dict[str, QueueSettings]:
    """The queues according to live workers; if two differ, the worker that started last is believed."""
    return {
        name: QueueSettings(worker.queue_priorities.get(name), worker.queue_max_concurrency.get(name))
        for worker in sorted(workers, key=lambda worker: worker.started_at)
        if worker.is_live
        for name in {*worker.queues, *worker.queue_max_concurrency}
    }


def _queues(
    waiting: Sequence[Waiting],
    in_flight: Sequence[InHand],
    ended: Sequence[EndedOfLate],
    workers: Sequence[WorkerStateInfo],
    configured: Mapping[str, QueueSettings],
) -> list[QueueInfo]:
    known = {**configured, **settings_of_workers(workers)}
    served = [name for worker in workers if worker.is_live for name in worker.queues]
    seen = {part.queue for parts in (waiting, in_flight, ended) for part in parts}
    queues = {name: QueueInfo(name, 0, 0, 0, 0, 0, None, 0) for name in sorted({*known, *served, *seen})}
    for part in waiting:
        queues[part.queue] = _with_waiting(queues[part.queue], part)
    for held in in_flight:
        queue, running = queues[held.queue], held.status is TaskStatus.RUNNING
        queues[held.queue] = replace(
            queue,
            claimed=queue.claimed + (0 if running else held.number),
            running=queue.running + (held.number if running else 0),
        )
    for name, count in _last_minute(ended).items():
        queues[name] = replace(queues[name], ended_last_minute=count)
    return [
        replace(
            queue,
            max_concurrency=known.get(name, QueueSettings()).max_concurrency,
            priority=known.get(name, QueueSettings()).priority,
            live_workers=served.count(name),
        )
        for name, queue in queues.items()
    ]


def _with_waiting(queue: QueueInfo, part: Waiting) -> QueueInfo:
    ages = [age for age in (queue.oldest_due_seconds, part.oldest_due_seconds) if age is not None]
    return replace(
        queue,
        waiting=queue.waiting + part.number,
        due=queue.due + part.due,
        scheduled=queue.scheduled + part.number - part.due,
        oldest_due_seconds=max(ages, default=None),
    )


def _last_minute(ended: Sequence[EndedOfLate]) -> dict[str, int]:
    """What ended in each queue in the last minute; if the data does not reach back that far, an estimate from its
    rate."""
    counts: dict[str, int] = {}
    for part in ended:
        counts[part.queue] = counts.get(part.queue, 0) + part.last_minute
    longer = max(1.0, A_MINUTE_S / _reach(ended))
    return {name: round(count * longer) for name, count in counts.items()}


def _task_counts(
    waiting: Iterable[Waiting], in_flight: Iterable[InHand], ended: Iterable[EndedOfLate]
) -> Iterable[TaskCount]:
    yield from (TaskCount(TaskStatus.PENDING, part.queue, part.task_name, part.number) for part in waiting)
    yield from (TaskCount(part.status, part.queue, part.task_name, part.number) for part in in_flight)
    yield from (TaskCount(part.status, part.queue, part.task_name, part.number) for part in ended)


def _reach(ended: Sequence[EndedOfLate]) -> float:
    return ended[0].reach_seconds if ended else WINDOW.total_seconds()
