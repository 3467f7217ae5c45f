"""Deletes old records: regularly by age (`Retention`, R-80 to R-85), and by hand (`Purge`).

All deletion happens in bounded batches. Each batch is a transaction of its own under the pruning lock (D-62), followed
by a short pause, in which claims go first and another process may take the lock. A pass that runs out of time tells
what it has deleted, and the next one continues at once, because tasks may end as fast as they are deleted. A
manual purge deletes selected ended tasks, or cancels those that wait in a queue. It never touches tasks of workflows,
because they belong to their workflow. It calls `told` for every committed batch, so stopping halfway loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from random import uniform
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import psycopg

from horsies.core.codec.serde import serialize_error_payload
from horsies.core.db import (
    Connection,
    Connections,
    as_broker_result,
    describe,
    in_one_go,
    is_about_content,
    mending,
    on_bridge,
)
from horsies.core.models.broker import BrokerErrorCode
from horsies.core.models.notes import TaskLogs
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.models.tasks import OutcomeCode, TaskError, TaskResult
from horsies.core.store import many, notes, retention, rollup
from horsies.core.store.odd_rows import mend_odd_workflows
from horsies.core.store.retention import BATCH, FIRST, LOOK, PASS_ONE_BY, START, Choice, Portion, WaitingTask
from horsies.core.types import TaskStatus, run_sync

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

log = logging.getLogger("horsies.recovery")

PERIOD_S = 3600.0
PASS_S = 60.0  # for one pass
WAIT_S = 1.0  # for the lock: another worker's batch takes milliseconds
RETRY_S = (0.002, 0.02)  # between two tries: the one who has the lock rests for about a millisecond
REST = 1 / 20  # of the time that a batch took, before the next one
LONGEST_REST_S = 1.0
T = TypeVar("T")
Told: TypeAlias = Callable[[int], None]
Prune: TypeAlias = Callable[[Connection, retention.RetentionPosition, Portion], Awaitable[retention.Pruned]]
_DB = BrokerErrorCode.DB_OPERATION_FAILED

_PURGED = serialize_error_payload(
    TaskResult(err=TaskError(error_code=OutcomeCode.TASK_CANCELLED, message="the queue was purged"))
)


class Retention:
    """`step` makes a pass when one is due; `prune_heartbeats` is also called by each tick of the reaper (R-81)."""

    def __init__(
        self,
        database: Connections,
        recovery: RecoveryConfig,
        sweeping: WorkerRecoveryConfig,
        *,
        task_logs: TaskLogs | None = None,
        pass_s: float = PASS_S,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._database = database
        self._heartbeat_age = _hours(recovery.heartbeat_retention_hours)
        self._state_age = _hours(recovery.worker_state_retention_hours)
        self._record_age = _hours(recovery.terminal_record_retention_hours)
        self._rollup_age = _hours(recovery.rollup_retention_hours)
        self._audit_age = _hours(recovery.audit_retention_hours)
        self._log_age = timedelta(hours=(task_logs or TaskLogs()).keep_hours)  # also of those of earlier settings
        self._longest = longest_threshold(recovery, sweeping)
        self._pass_s = pass_s
        self._clock = clock
        self._due = clock()
        self._place = 0
        self._is_elsewhere = False

    async def step(self) -> None:
        """Delete everything old if an hour has passed since the last time, without a pause while there is more. If
        another worker is at it, the next step tries again."""
        begun = self._clock()
        if begun < self._due:
            return
        while not await self.prune():
            if self._is_elsewhere:
                return
        self._due = begun + PERIOD_S

    async def prune(self) -> bool:
        """Delete everything old, for a bounded time; False if there may be more, which the next call deletes."""
        # Nodes refer to tasks, so they are deleted first.
        tables = (
            self._heartbeats, self._worker_states, self._logs, self._workflows, self._tasks, self._workers,
            self._statistics, self._audit,
        )  # fmt: skip
        batches = Batches(self._database, monotonic() + self._pass_s)
        try:
            while self._place < len(tables):
                await tables[self._place](batches)
                self._place += 1
        except Stopped as stopped:
            self._is_elsewhere = stopped.is_elsewhere
            return False
        finally:
            batches.tell()
        self._place = 0
        return True

    async def prune_heartbeats(self, until: float) -> None:
        """Delete only heartbeats, until the given time at most."""
        if (age := self._heartbeat_age) is None:
            return
        async with self._database.connection() as conn:
            if not await retention.has_old_heartbeats(conn, age):
                return
        batches = Batches(self._database, until)
        try:
            await self._heartbeats(batches)
        except Stopped:
            pass  # the next tick goes on
        finally:
            batches.tell()

    async def _heartbeats(self, batches: Batches) -> None:
        if (age := self._heartbeat_age) is not None:
            await batches.run_all("heartbeats", lambda conn: retention.prune_heartbeats(conn, age, self._longest))

    async def _logs(self, batches: Batches) -> None:
        await batches.run_all("logs", lambda conn: notes.prune_logs(conn, self._log_age, BATCH))

    async def _worker_states(self, batches: Batches) -> None:
        if (age := self._state_age) is not None:
            await batches.run_all("snapshots", lambda conn: retention.prune_worker_states(conn, age))

    async def _workers(self, batches: Batches) -> None:
        await batches.run_all("workers", retention.prune_workers)

    async def _statistics(self, batches: Batches) -> None:
        if (age := self._rollup_age) is not None:
            await batches.run_all("statistics", lambda conn: retention.prune_rollup(conn, age))

    async def _audit(self, batches: Batches) -> None:
        if (age := self._audit_age) is not None:
            await batches.run_all("audit records", lambda conn: retention.prune_audit(conn, age))

    async def _tasks(self, batches: Batches) -> None:
        if (age := self._record_age) is not None:
            await batches.walk("tasks", lambda conn, *at: retention.prune_tasks(conn, age, *at))

    async def _workflows(self, batches: Batches) -> None:
        """Repeat while it deletes anything: parents are deleted after their children (R-83)."""
        if (age := self._record_age) is not None:
            while await batches.walk("workflows", lambda conn, *at: retention.prune_workflows(conn, age, *at)):
                pass


def longest_threshold(recovery: RecoveryConfig, sweeping: WorkerRecoveryConfig) -> timedelta:
    """The longest threshold: younger heartbeats may still prove that a task is alive (R-82)."""
    return max(
        timedelta(milliseconds=recovery.claimed_stale_threshold_ms),
        timedelta(milliseconds=recovery.running_stale_threshold_ms),
        timedelta(milliseconds=recovery.finalizing_stale_threshold_ms),
        sweeping.sweep_threshold * sweeping.resilient_sweep_threshold_multiplier,
    )


def _hours(hours: int | None) -> timedelta | None:
    return None if hours is None else timedelta(hours=hours)


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
    place: retention.RetentionPosition | None = START
    while place is not None:
        async with broker.hub.connection() as conn:
            counts, place = await retention.count_ended(conn, purge.age, purge.choice, place)
        for one in counts:
            found[one.status, one.queue, one.task_name] += one.count
    return _sorted(found)


@as_broker_result(_DB)
@on_bridge
async def delete_ended(broker: PostgresBroker, purge: Purge, told: Told = lambda rows: None) -> bool:
    """Delete them, with their attempts; False if another process held the pruning lock for too long."""
    batches = Batches(broker.hub, math.inf, lambda what, rows: told(rows), durable=True)
    try:
        await batches.walk(
            "tasks", lambda conn, place, portion: retention.prune_tasks(conn, purge.age, place, portion, purge.choice)
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
            cancelled = await many.cancel(conn, [task.rank.task_id for task in tasks], _PURGED)
            told(len(cancelled))
            await rollup.count_cancelled(conn, cancelled)


count_ended_sync = run_sync(count_ended)
delete_ended_sync = run_sync(delete_ended)
count_waiting_sync = run_sync(count_waiting)
cancel_waiting_sync = run_sync(cancel_waiting)


async def _waiting(broker: PostgresBroker, purge: Purge, most: int) -> AsyncIterator[tuple[str, list[WaitingTask]]]:
    """The selected tasks, queue by queue, a batch at a time."""
    begun = monotonic()
    for queue in purge.queues:
        after, looked = FIRST, most
        while looked == most:
            # Tasks that were sent after the beginning are left out; otherwise a busy queue would have no end.
            age = purge.age + timedelta(seconds=monotonic() - begun)
            async with broker.hub.connection() as conn:
                tasks = await retention.waiting(conn, queue, age, purge.task_names, after, most)
            looked = len(tasks)
            after = tasks[-1].rank if tasks else after
            yield queue, [task for task in tasks if task.is_chosen]


def _sorted(found: Counter[tuple[str, str, str]]) -> list[PurgeCount]:
    """The largest first."""
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [PurgeCount(TaskStatus(status), queue, name, count) for (status, queue, name), count in ordered]


class Stopped(Exception):
    """The time is over, or another worker is pruning (`is_elsewhere`)."""

    def __init__(self, *, is_elsewhere: bool) -> None:
        self.is_elsewhere = is_elsewhere


class Batches:
    """One batch after the other, each under the lock, until the time is over."""

    def __init__(
        self,
        database: Connections,
        until: float,
        told: Callable[[str, int], None] = lambda what, rows: None,
        *,
        durable: bool = False,
    ) -> None:
        self._database = database
        self._until = until
        self._told = told  # called after each batch that is committed
        self._durable = durable  # a server that crashes brings nothing back that was told of
        self._count = 0
        self._rest = 0.0  # the pause before the next batch
        self._gone: dict[str, int] = {}
        self._left: set[str] = set()  # what was refused
        self._may_be_odd = True

    async def run_all(self, what: str, prune: Callable[[Connection], Awaitable[int]]) -> None:
        """Repeat while batches are full."""
        while True:
            rows = await self._run(prune)
            self._note(what, rows)
            if rows < BATCH:
                return

    async def walk(self, what: str, prune: Prune) -> int:
        """Go through the table to its end; return how many rows were deleted. A row whose deletion is refused, as by
        somebody's foreign key, is passed by."""
        rows, place, most = 0, START, BATCH
        while True:
            try:
                pruned = await self._run(prune, place, Portion(most))
                most = min(BATCH, 2 * most)
            except psycopg.Error as problem:
                if not is_about_content(problem):
                    raise
                if most > 1:
                    most = max(1, most // 8)
                    continue
                self._refused(what, problem)
                pruned = await self._run(prune, place, PASS_ONE_BY)
            rows += pruned.rows + pruned.nodes
            self._note(what, pruned.rows)
            self._note("nodes", pruned.nodes)
            if pruned.next is None:
                return rows
            place = pruned.next

    def _refused(self, what: str, problem: psycopg.Error) -> None:
        if what not in self._left:
            log.warning("retention: %s are left that cannot be deleted: %s", what, describe(problem))
        self._left.add(what)

    def tell(self) -> None:
        """Log what was deleted."""
        gone = {what: rows for what, rows in self._gone.items() if rows}
        if gone:
            log.info("retention: deleted %s", ", ".join(f"{rows} {what}" for what, rows in gone.items()))

    def _note(self, what: str, rows: int) -> None:
        self._gone[what] = self._gone.get(what, 0) + rows
        self._told(what, rows)

    async def _run(self, prune: Callable[..., Awaitable[T]], *at: Any) -> T:
        await asyncio.sleep(self._rest)
        waited_for = monotonic()
        while True:
            begun = monotonic()
            is_late = begun - waited_for > WAIT_S
            if is_late or (self._count and begun >= self._until):
                raise Stopped(is_elsewhere=is_late)
            answer = await mending(partial(self._try, prune, at), self._mend)
            if answer is not None:
                self._count += 1
                self._rest = min(REST * (monotonic() - begun), LONGEST_REST_S)
                return answer
            await asyncio.sleep(uniform(*RETRY_S))

    async def _try(self, prune: Callable[..., Awaitable[T]], at: tuple[Any, ...]) -> T | None:
        async with self._database.connection() as conn, in_one_go(conn):
            return await prune(conn, *at) if await retention.try_lock(conn, durable=self._durable) else None

    async def _mend(self) -> bool:
        """A node that loses its task or child is changed, which is refused if its row is outside the limits. The search
        reads whole tables, so it is made again only if it has found something."""
        self._may_be_odd = self._may_be_odd and await mend_odd_workflows(self._database)
        return self._may_be_odd
