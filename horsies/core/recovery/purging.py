"""Manual clean-up: delete selected ended tasks, or cancel those that wait in a queue.

Tasks of workflows are never touched, because they belong to their workflow. The work is done in bounded batches, each
committed before the next, so stopping halfway loses nothing. It is written once, async, and runs on the broker's
bridge; `told` is called for every committed batch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from horsies.core.brokers.results import as_broker_result
from horsies.core.codec.serde import serialize_error_payload
from horsies.core.models.broker import BrokerErrorCode
from horsies.core.models.tasks import OutcomeCode, TaskError, TaskResult
from horsies.core.recovery.retention import Batches, Stopped
from horsies.core.store import purging, retention
from horsies.core.store.purging import FIRST, LOOK, Waiting
from horsies.core.store.retention import BATCH, START, Choice
from horsies.core.sync import on_bridge
from horsies.core.types.status import TaskStatus
from horsies.core.types.twins import run_sync

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

Told: TypeAlias = Callable[[int], None]

_DB = BrokerErrorCode.DB_OPERATION_FAILED
_PURGED = serialize_error_payload(
    TaskResult(err=TaskError(error_code=OutcomeCode.TASK_CANCELLED, message="the queue was purged"))
)


class Purge(NamedTuple):
    """Which tasks, and how long ago they ended or were sent. An empty field does not filter."""

    age: timedelta
    statuses: tuple[TaskStatus, ...] = ()
    queues: tuple[str, ...] = ()
    task_names: tuple[str, ...] = ()

    @property
    def choice(self) -> Choice:
        statuses = tuple(status.value for status in self.statuses)
        return Choice(statuses, self.queues, self.task_names, with_workflows=False)


@dataclass(frozen=True, slots=True)
class PurgeCount:
    """How many tasks of one status, queue and name a purge is about."""

    status: TaskStatus
    queue: str
    task_name: str
    count: int


@as_broker_result(_DB)
@on_bridge
async def count_ended(broker: PostgresBroker, purge: Purge) -> list[PurgeCount]:
    """What `delete_ended` would delete."""
    found: Counter[tuple[str, str, str]] = Counter()
    place: retention.Place | None = START
    while place is not None:
        async with broker.hub.connection() as conn:
            counts, place = await purging.count_ended(conn, purge.age, purge.choice, place)
        for one in counts:
            found[one.status, one.queue, one.task_name] += one.count
    return _sorted(found)


@as_broker_result(_DB)
@on_bridge
async def delete_ended(broker: PostgresBroker, purge: Purge, told: Told = lambda rows: None) -> bool:
    """Delete them, with their attempts; False if another process held the pruning lock for too long."""
    batches = Batches(broker.hub, math.inf, lambda what, rows: told(rows))
    try:
        await batches.walk(
            "tasks", lambda conn, place: retention.prune_tasks(conn, purge.age, place, choice=purge.choice)
        )
    except Stopped:
        return False
    return True


@as_broker_result(_DB)
@on_bridge
async def count_waiting(broker: PostgresBroker, purge: Purge) -> list[PurgeCount]:
    """What `cancel_waiting` would cancel."""
    found: Counter[tuple[str, str, str]] = Counter()
    async for queue, tasks in _waiting(broker, purge, LOOK):
        found.update((TaskStatus.PENDING.value, queue, task.task_name) for task in tasks)
    return _sorted(found)


@as_broker_result(_DB)
@on_bridge
async def cancel_waiting(broker: PostgresBroker, purge: Purge, told: Told = lambda rows: None) -> None:
    """PENDING → CANCELLED, for the tasks that were waiting in the queues when this began."""
    async for _, tasks in _waiting(broker, purge, BATCH):
        async with broker.hub.connection() as conn:
            told(len(await purging.cancel(conn, [task.rank.task_id for task in tasks], _PURGED)))


async def _waiting(broker: PostgresBroker, purge: Purge, most: int) -> AsyncIterator[tuple[str, list[Waiting]]]:
    """The selected tasks, queue by queue, a batch at a time."""
    begun = monotonic()
    for queue in purge.queues:
        after, looked = FIRST, most
        while looked == most:
            # What has been sent since the beginning is not meant; else a busy queue would have no end.
            age = purge.age + timedelta(seconds=monotonic() - begun)
            async with broker.hub.connection() as conn:
                tasks = await purging.waiting(conn, queue, age, purge.task_names, after, most)
            looked = len(tasks)
            after = tasks[-1].rank if tasks else after
            yield queue, [task for task in tasks if task.is_chosen]


def _sorted(found: Counter[tuple[str, str, str]]) -> list[PurgeCount]:
    """The largest first."""
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [PurgeCount(TaskStatus(status), queue, name, count) for (status, queue, name), count in ordered]


count_ended_sync = run_sync(count_ended)
delete_ended_sync = run_sync(delete_ended)
count_waiting_sync = run_sync(count_waiting)
cancel_waiting_sync = run_sync(cancel_waiting)
