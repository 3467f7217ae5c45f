"""The one read model of the command line and of metrics: queues, tasks, workers, schedules and the server, at one
moment. Each number is defined only here. Every part is limited, so that the cost does not depend on the number of tasks
in any state; a queue in which more tasks wait than are counted is estimated from a sample of the table. A part that
cannot be read is missing, and the others are there. `assemble` only combines what was read.

`Reader` reads snapshots for scrapes, with limits: one reading at a time, none while the last one is young, and none
that takes long. So repeated scrapes cost the database nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from math import inf
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg import Error

from horsies.core.db import AWAY, Connection, Pool, answered_within, describe
from horsies.core.models.app import AppConfig
from horsies.core.models.monitoring import cluster, tasks
from horsies.core.monitoring import metrics, queries
from horsies.core.store import monitoring
from horsies.core.store.monitoring import Depth, EndedOfLate, InFlightCount, OldestDue, WaitingCount
from horsies.core.types import TaskStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker


T = TypeVar("T")
log = logging.getLogger("horsies.metrics")
WINDOW = timedelta(hours=1)
MOST_ENDED = 20_000
MOST_QUEUES = 2_000  # with waiting tasks; those of the configuration and of live workers are always looked at
MOST_COUNTED = 10_000  # waiting tasks of one queue
COUNTED_IN_ALL = 20_000  # waiting tasks, shared by the queues: these are only entries of an index
NAMED_IN_ALL = 5_000  # the same, by name: for these the table is visited
LEAST_COUNTED = 5  # of each queue
SAMPLED_PAGES = 1_000
MOST_IN_FLIGHT = 100_000
MOST_WORKFLOWS = 50_000  # in each state
A_MINUTE_S = 60.0
MAX_AGE_S = 5.0
RETRY_S = 2.0  # the pause after a failed reading
PATIENCE_S = 5.0
PART_S = 1.5  # a statement of a part may take so long,
PARTS_S = 3.3  # and no part is begun later than this, so that all of them end within the patience


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


async def take_snapshot(broker: PostgresBroker, *, exact: bool = False) -> tasks.MonitoringResult[cluster.Snapshot]:
    """Everything at one moment, by the clock of the database. With `exact`, all that has not ended is counted."""
    known = configured_by(None if broker.app is None else broker.app.config)
    patience = None if exact else timedelta(seconds=PART_S)
    return await queries.ask(
        broker, partial(read_snapshot, configured=known, exact=exact), exact=exact, patience=patience
    )


async def read_snapshot(conn: Connection, *, configured: Configured, exact: bool = False) -> cluster.Snapshot:
    """The same over a connection, in the caller's transaction. What is cheap is read first, so that it is there even if
    time runs out."""
    database = await monitoring.database(conn)
    parts = Parts(conn, inf if exact else monotonic() + PARTS_S)
    workers = await parts.read(
        "workers",
        partial(monitoring.workers, most=queries.MOST_WORKERS),
        tuple[cluster.WorkerStateInfo, ...](),
    )
    known = {*configured.queues, *(name for worker in workers if worker.is_live for name in worker.queues)}
    waited_in = partial(monitoring.waiting_queues, most=MOST_QUEUES)
    names = sorted({*known, *await parts.read("queues", waited_in, list[str]())})
    oldest_due = await parts.read("oldest_due", partial(monitoring.oldest_due, queues=names), dict[str, OldestDue]())
    in_flight = partial(monitoring.in_flight, most=None if exact else MOST_IN_FLIGHT)
    ended = partial(monitoring.ended, window=WINDOW, most=MOST_ENDED)
    schedules = partial(monitoring.schedules, most=queries.MOST_SCHEDULES)
    open_workflows = partial(monitoring.open_workflows, most=None if exact else MOST_WORKFLOWS)
    return assemble(
        oldest_due=oldest_due,
        in_flight=await parts.read("in_flight", in_flight, list[InFlightCount]()),
        ended=await parts.read("ended", ended, list[EndedOfLate]()),
        workers=workers,
        schedules=await parts.read("schedules", schedules, tuple[cluster.ScheduleStateInfo, ...]()),
        workflow_counts=await parts.read("workflows", open_workflows, dict[str, int]()),
        waiting=await _read_waiting(parts, names, exact=exact),
        database=database,
        configured=configured,
        missing=parts.missing,
    )


class Parts:
    """Reads the parts of a snapshot, each in a savepoint of its own: the failure of one leaves the others."""

    def __init__(self, conn: Connection, deadline: float) -> None:
        self.missing: dict[str, str] = {}
        self._conn = conn
        self._deadline = deadline  # on the monotonic clock

    async def read(self, name: str, question: Callable[[Connection], Awaitable[T]], instead: T) -> T:
        """The answer, or `instead`. If the connection is lost, there is nothing to go on with."""
        if monotonic() > self._deadline:
            self.missing[name] = "the parts before it took too long"
            return instead
        try:
            async with self._conn.transaction():
                return await question(self._conn)
        except Error as problem:
            if self._conn.closed:
                raise
            self.missing[name] = describe(problem)
            return instead


async def _read_waiting(parts: Parts, queues: Sequence[str], *, exact: bool) -> list[WaitingCount]:
    """What waits in these queues, in up to three steps: the last tasks of each queue by name; how many there are where
    these are not all; and an estimate where there are even more. What fails is left to the next step."""
    most = None if exact else _share(NAMED_IN_ALL, len(queues))
    waiting = partial(monitoring.waiting, queues=queues, most=most)
    found = await parts.read("waiting", waiting, list[WaitingCount]())
    cut = sorted({part.queue for part in found if part.is_cut})
    if cut:
        depths = partial(monitoring.depths, queues=cut, most=_share(COUNTED_IN_ALL, len(cut)))
        found = shared_out(found, await parts.read("depths", depths, list[Depth]()))
        cut = sorted({part.queue for part in found if part.is_cut})
    if "waiting" in parts.missing:
        cut = list(queues)
    if cut:
        sample = partial(monitoring.waiting_sample, queues=cut, pages=SAMPLED_PAGES)
        found = estimated(found, await parts.read("sample", sample, list[WaitingCount]()))
        if "sample" not in parts.missing:
            parts.missing.pop("waiting", None)  # it is known after all
        met = {part.queue for part in found}
        found += [WaitingCount(queue, "", 0, 0, is_cut=True) for queue in cut if queue not in met]
    return found


def _share(in_all: int, queues: int) -> int:
    return max(LEAST_COUNTED, min(MOST_COUNTED, in_all // max(1, queues)))


def shared_out(named: Iterable[WaitingCount], depths: Iterable[Depth]) -> list[WaitingCount]:
    """The numbers of queues that were counted further, in proportion to the names that were seen in them."""
    parts: dict[str, list[WaitingCount]] = {}
    for part in named:
        parts.setdefault(part.queue, []).append(part)
    for depth in depths:
        parts[depth.queue] = _shares(parts.get(depth.queue, []), depth)
    return [part for some in parts.values() for part in some]


def _shares(parts: Sequence[WaitingCount], depth: Depth) -> list[WaitingCount]:
    """Each name gets its part of what the names before it have left; so nothing is lost by rounding."""
    seen, number, due = sum(part.number for part in parts), depth.number, depth.due
    shares = []
    for part in sorted(parts, key=lambda part: part.number):
        share = round(number * part.number / seen)
        share_due = max(min(share, round(due * part.number / seen)), due - (number - share))
        shares.append(WaitingCount(part.queue, part.task_name, share, share_due, depth.is_cut, is_share=True))
        seen, number, due = seen - part.number, number - share, due - share_due
    return shares


def estimated(counted: Sequence[WaitingCount], sampled: Sequence[WaitingCount]) -> list[WaitingCount]:
    """For queues that were not counted to their end, what the sample says, unless it says less than was counted."""
    at_least, about = _numbers(counted), _numbers(sampled)
    cut = {part.queue for part in counted if part.is_cut}
    better = {queue for queue in about if about[queue] > at_least[queue] and (queue in cut or queue not in at_least)}
    kept = [part._replace(is_cut=part.queue in cut) for part in counted if part.queue not in better]
    return kept + [part for part in sampled if part.queue in better]


def _numbers(parts: Iterable[WaitingCount]) -> Counter[str]:
    numbers: Counter[str] = Counter()
    for part in parts:
        numbers[part.queue] += part.number
    return numbers


def assemble(
    *,
    waiting: Sequence[WaitingCount],
    oldest_due: Mapping[str, OldestDue],
    in_flight: Sequence[InFlightCount],
    ended: Sequence[EndedOfLate],
    workers: Sequence[cluster.WorkerStateInfo],
    schedules: Sequence[cluster.ScheduleStateInfo],
    workflow_counts: Mapping[str, int],
    database: Mapping[str, Any],
    configured: Configured,
    missing: Mapping[str, str] = MappingProxyType({}),
) -> cluster.Snapshot:
    facts = dict(database)
    return cluster.Snapshot(
        taken_at=facts.pop("taken_at"),
        queues=tuple(_queues(waiting, oldest_due, in_flight, ended, workers, configured.queues)),
        task_counts=tuple(_task_counts(waiting, in_flight, ended)),
        ended_window_seconds=_reach(ended),
        workers=tuple(workers),
        schedules=queries.judged(schedules, configured.schedules),
        workflow_counts=dict(workflow_counts),
        database=cluster.DatabaseFacts(**facts),
        missing=dict(missing),
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
    oldest_due: Mapping[str, OldestDue],
    in_flight: Sequence[InFlightCount],
    ended: Sequence[EndedOfLate],
    workers: Sequence[cluster.WorkerStateInfo],
    configured: Mapping[str, QueueSettings],
) -> list[cluster.QueueInfo]:
    known = {**configured, **settings_of_workers(workers)}
    served = [name for worker in workers if worker.is_live for name in worker.queues]
    seen = {part.queue for parts in (waiting, in_flight, ended) for part in parts}
    numbers = {name: Counter[str]() for name in sorted({*known, *served, *seen, *oldest_due})}
    for part in waiting:
        found = numbers[part.queue]
        found["waiting"] += part.number
        found["due"] += part.due
        found["cut"] += part.is_cut
    for held in in_flight:
        numbers[held.queue]["running" if held.status is TaskStatus.RUNNING else "claimed"] += held.number
    is_cut = any(held.is_cut for held in in_flight)
    last_minute, servers = _last_minute(ended), Counter(served)
    return [
        cluster.QueueInfo(
            name,
            waiting=found["waiting"],
            due=found["due"],
            scheduled=found["waiting"] - found["due"],
            claimed=found["claimed"],
            running=found["running"],
            oldest_due_seconds=oldest_due[name].seconds if name in oldest_due else None,
            ended_last_minute=last_minute.get(name, 0),
            max_concurrency=known.get(name, QueueSettings()).max_concurrency,
            priority=known.get(name, QueueSettings()).priority,
            live_workers=servers[name],
            is_exact=not found["cut"] and not is_cut,
            oldest_due_task_id=oldest_due[name].task_id if name in oldest_due else None,
        )
        for name, found in numbers.items()
    ]


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
    pending = TaskStatus.PENDING
    yield from (
        cluster.TaskCount(pending, part.queue, part.task_name, part.number, not (part.is_cut or part.is_share))
        for part in waiting
        if part.task_name or part.number
    )
    yield from (
        cluster.TaskCount(part.status, part.queue, part.task_name, part.number, not part.is_cut) for part in in_flight
    )
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
            await monitoring.settle(conn, timedelta(seconds=PART_S))
            return await read_snapshot(conn, configured=configured)

    async def read() -> cluster.Snapshot:
        async with pool.connection() as conn:
            return await answered_within(PATIENCE_S, conn, look(conn))

    return read
