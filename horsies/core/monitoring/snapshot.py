"""The one read model of the command line and of metrics: queues, tasks, workers, schedules and the server, at one
moment. Each number is defined only here. The cost depends on the tasks that wait, are in flight, or ended recently
(which is limited), not on the number of tasks that ended long ago. `assemble` only combines what was read.

`Reader` reads snapshots for scrapes, with limits: one reading at a time, none while the last one is young, and none
that takes long. So repeated scrapes cost the database nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from horsies.core.db import AWAY, Connection, Pool, answered_within, describe
from horsies.core.models.app import AppConfig
from horsies.core.models.monitoring import cluster, tasks
from horsies.core.monitoring import metrics, queries
from horsies.core.store import monitoring
from horsies.core.store.monitoring import EndedOfLate, InFlightCount, WaitingCount
from horsies.core.types import TaskStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker


log = logging.getLogger("horsies.metrics")
WINDOW = timedelta(hours=1)
MOST_ENDED = 50_000
A_MINUTE_S = 60.0
MAX_AGE_S = 5.0
RETRY_S = 2.0  # the pause after a failed reading
PATIENCE_S = 5.0


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
    return Configured(queues, queries.firing_schedules(config))


async def take_snapshot(broker: PostgresBroker) -> tasks.MonitoringResult[cluster.Snapshot]:
    """Everything at one moment, by the clock of the database."""
    known = configured_by(None if broker.app is None else broker.app.config)
    return await queries.ask(broker, partial(read_snapshot, configured=known))


async def read_snapshot(conn: Connection, *, configured: Configured) -> cluster.Snapshot:
    """The same over a connection, in the caller's transaction."""
    return assemble(
        waiting=await monitoring.waiting(conn),
        in_flight=await monitoring.in_flight(conn),
        ended=await monitoring.ended(conn, WINDOW, most=MOST_ENDED),
        workers=await monitoring.workers(conn, most=queries.MOST_WORKERS),
        schedules=await monitoring.schedules(conn, most=queries.MOST_SCHEDULES),
        workflow_counts=await monitoring.open_workflows(conn),
        database=await monitoring.database(conn),
        configured=configured,
    )


def assemble(
    *,
    waiting: Sequence[WaitingCount],
    in_flight: Sequence[InFlightCount],
    ended: Sequence[EndedOfLate],
    workers: Sequence[cluster.WorkerStateInfo],
    schedules: Sequence[cluster.ScheduleStateInfo],
    workflow_counts: Mapping[str, int],
    database: Mapping[str, Any],
    configured: Configured,
) -> cluster.Snapshot:
    facts = dict(database)
    return cluster.Snapshot(
        taken_at=facts.pop("taken_at"),
        queues=tuple(_queues(waiting, in_flight, ended, workers, configured.queues)),
        task_counts=tuple(_task_counts(waiting, in_flight, ended)),
        ended_window_seconds=_reach(ended),
        workers=tuple(workers),
        schedules=queries.judged(schedules, configured.schedules),
        workflow_counts=dict(workflow_counts),
        database=cluster.DatabaseFacts(**facts),
    )


def settings_of_workers(workers: Iterable[cluster.WorkerStateInfo]) -> dict[str, QueueSettings]:
    """The queues according to live workers; if two differ, the worker that started last is believed."""
    return {
        name: QueueSettings(worker.queue_priorities.get(name), worker.queue_max_concurrency.get(name))
        for worker in sorted(workers, key=lambda worker: worker.started_at)
        if worker.is_live
        for name in {*worker.queues, *worker.queue_max_concurrency}
    }


def _queues(
    waiting: Sequence[WaitingCount],
    in_flight: Sequence[InFlightCount],
    ended: Sequence[EndedOfLate],
    workers: Sequence[cluster.WorkerStateInfo],
    configured: Mapping[str, QueueSettings],
) -> list[cluster.QueueInfo]:
    known = {**configured, **settings_of_workers(workers)}
    served = [name for worker in workers if worker.is_live for name in worker.queues]
    seen = {part.queue for parts in (waiting, in_flight, ended) for part in parts}
    queues = {name: cluster.QueueInfo(name, 0, 0, 0, 0, 0, None, 0) for name in sorted({*known, *served, *seen})}
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


def _with_waiting(queue: cluster.QueueInfo, part: WaitingCount) -> cluster.QueueInfo:
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
    waiting: Iterable[WaitingCount], in_flight: Iterable[InFlightCount], ended: Iterable[EndedOfLate]
) -> Iterable[cluster.TaskCount]:
    yield from (cluster.TaskCount(TaskStatus.PENDING, part.queue, part.task_name, part.number) for part in waiting)
    yield from (cluster.TaskCount(part.status, part.queue, part.task_name, part.number) for part in in_flight)
    yield from (cluster.TaskCount(part.status, part.queue, part.task_name, part.number) for part in ended)


def _reach(ended: Sequence[EndedOfLate]) -> float:
    return ended[0].reach_seconds if ended else WINDOW.total_seconds()


class NoReading(Exception):
    """The database did not answer; the text says why."""


class Reader:
    """`reading()` is the newest reading; `read` queries the database and raises what goes wrong."""

    def __init__(
        self,
        read: Callable[[], Awaitable[cluster.Snapshot]],
        *,
        max_age_s: float = MAX_AGE_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._read = read
        self._max_age_s = max_age_s
        self._patience_s = patience_s
        self._snapshot: cluster.Snapshot | None = None
        self._problem: str | None = None
        self._read_at = 0.0  # when the last reading ended
        self._took_s = 0.0
        self._errors = 0
        self._asking: asyncio.Task[None] | None = None

    @property
    def problem(self) -> str | None:
        """Why the last reading failed; None if it did not."""
        return self._problem

    async def reading(self) -> metrics.DatabaseReading:
        """A reading of limited age; while the database does not answer, one without numbers."""
        if self._asking is None and self._is_old():
            self._asking = asyncio.create_task(self._ask(), name="horsies reading")
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=self._patience_s)
            if self._asking is not None:  # a reading is still under way, and the last one is too old
                return metrics.DatabaseReading(None, errors=self._errors, took_s=self._patience_s)
        return metrics.DatabaseReading(self._snapshot, monotonic() - self._read_at, self._took_s, self._errors)

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    def _is_old(self) -> bool:
        age = monotonic() - self._read_at
        return not self._read_at or age >= (RETRY_S if self._snapshot is None else self._max_age_s)

    async def _ask(self) -> None:
        began = monotonic()
        try:
            self._snapshot, problem = await self._read(), None
        except (NoReading, *AWAY) as failed:
            problem = str(failed) if isinstance(failed, NoReading) else describe(failed)
        except Exception as failed:  # an error in monitoring must not end the process
            log.exception("the database could not be read")
            problem = type(failed).__name__
        finally:
            self._asking = None
        if problem is not None:
            self._snapshot, self._errors = None, self._errors + 1
            if self._problem is None:
                log.warning("the database cannot be read for metrics: %s", problem)
        self._problem = problem
        self._read_at = monotonic()
        self._took_s = self._read_at - began


def over(pool: Pool, configured: Configured) -> Callable[[], Awaitable[cluster.Snapshot]]:
    """Read over a separate pool."""

    async def look(conn: Connection) -> cluster.Snapshot:
        async with conn.transaction():
            await monitoring.settle(conn, timedelta(seconds=PATIENCE_S))
            return await read_snapshot(conn, configured=configured)

    async def read() -> cluster.Snapshot:
        async with pool.connection() as conn:
            return await answered_within(PATIENCE_S, conn, look(conn))

    return read
