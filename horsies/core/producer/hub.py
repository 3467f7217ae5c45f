"""What one process keeps open to the database: a pool, one LISTEN connection for everything that waits, and the
knowledge that the schema is installed. It lives on the loop of the bridge and is made anew after a fork.
`ping_database` and `ping_workers` check whether the database and the workers answer: one statement for the database, a
NOTIFY and a time of listening for the workers.
"""

import asyncio
import contextlib
import json
import os
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic, perf_counter
from typing import Any, TypeVar

from psycopg import AsyncConnection

from horsies.core.db import BY_INDEX, Listener, OperationRefused, PoolClosed, SchemaInitFailed, connect, make_pool
from horsies.core.db.connections import drain_pending_connects
from horsies.core.models.broker import BrokerErrorCode, DatabasePing, PostgresConfig, WorkerPong
from horsies.core.producer import waiter
from horsies.core.producer.writer import Writer
from horsies.core.schema.install import InstallReport, install, look
from horsies.core.sql import load
from horsies.core.store import sends, workflow_reads

LONGEST_ID = 36
PONG = "horsies_worker_pong"
LISTEN_SECONDS = 5.0  # how long the connection may take to listen to one more channel
CANNOT_LISTEN = (
    "workers answer by a notification, and no notification arrives through a transaction pooler; "
    "set session_database_url to an address that does not go through it"
)
EndedT = TypeVar("EndedT", bound=sends.EndedTask | workflow_reads.WorkflowEnded)


class Hub:
    """Nothing is opened before it is needed."""

    def __init__(self, config: PostgresConfig, *, installs: bool = True) -> None:
        """`installs`: install or upgrade the schema if necessary."""
        self._config = config
        self._installs = installs
        self._pool = make_pool(
            config,
            min_size=config.pool_size,
            max_size=config.pool_size + config.max_overflow,
            name="horsies",
            options=BY_INDEX,
        )
        session = partial(connect, config, session=True, name="horsies listener")
        self.listener = Listener(session if config.has_sessions else None, name="result listener")
        self.writer = Writer(self)
        self._holder = f"{socket.gethostname()[:60]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._waiters: dict[str, waiter.Waiter[Any]] = {}  # by their channels
        self._installed: InstallReport | None = None
        self._installing: asyncio.Task[InstallReport] | None = None
        self.is_interrupted = False

    async def ready(self) -> InstallReport:
        """Make sure that the schema is installed (T-12). Concurrent callers share one try; the next call tries
        again."""
        if self._installed is None:
            if self._installing is None or self._installing.done():
                self._installing = asyncio.create_task(self._install())
            try:
                self._installed = await asyncio.shield(self._installing)
            except Exception as problem:
                raise SchemaInitFailed from problem
        return self._installed

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A pooled connection to a database that has the schema."""
        await self.ready()
        async with self._pool.connection() as conn:
            yield conn

    def borrow(self) -> AsyncConnection[Any] | None:
        """Borrow an idle connection to a database that has the schema, if there is one. It can be called from any
        thread; `bring_back` returns the connection."""
        return self._pool.borrow() if self._installed is not None else None

    def bring_back(self, conn: AsyncConnection[Any]) -> None:
        self._pool.bring_back(conn)

    async def wait_for(self, task_id: str, timeout: float | None) -> waiter.Ending:
        """How the task ended, or why that is not known; it never raises."""
        if not can_exist(task_id):
            # No such id can exist. It is left out, because the database would refuse the whole statement.
            return sends.EndedTask(task_id, None, None, None, None)
        return await self._wait(waiter.TASKS, task_id, timeout)

    async def wait_for_workflow(self, workflow_id: str, timeout: float | None) -> waiter.WorkflowEnding:
        """How the workflow ended, or that it is paused, or why that is not known; it never raises."""
        if not can_exist(workflow_id):
            return workflow_reads.WorkflowEnded(workflow_id, None)
        return await self._wait(waiter.WORKFLOWS, workflow_id, timeout)

    def interrupt_waits(self) -> None:
        """Whoever waits for a result is told that this process waits no longer; later callers get one look each."""
        self.is_interrupted = True
        for one in self._waiters.values():
            one.interrupt()

    async def listen(self) -> None:
        """Make sure that the LISTEN connection exists; raise the reason if it does not."""
        if self.listener.is_off:
            raise OperationRefused(BrokerErrorCode.DB_OPERATION_FAILED, CANNOT_LISTEN)
        await self.ready()
        await self.listener.start()
        if not self.listener.connected:
            raise self.listener.last_error or PoolClosed("the listener was stopped")

    async def close(self) -> None:
        self.interrupt_waits()
        await self.writer.close()
        for one in self._waiters.values():
            await one.stop()
        await self.listener.stop()
        await self._pool.close()
        await drain_pending_connects()

    async def _wait(
        self, subject: waiter.WaitSubject[EndedT], id_: str, timeout: float | None
    ) -> EndedT | waiter.NoEnding:
        begun = monotonic()
        try:
            async with asyncio.timeout(None if timeout is None else max(timeout, waiter.FIRST_LOOK_SECONDS)):
                report = await self.ready()
        except TimeoutError:
            return waiter.TimedOut()
        except SchemaInitFailed as problem:
            return waiter.Unreachable(problem)
        if (found := self._waiters.get(subject.channel)) is None:
            found = waiter.Waiter(self._pool, self.listener, subject, holder=self._holder, notify=report.notify)
            self._waiters[subject.channel] = found
        if self.is_interrupted:
            found.interrupt()
        return await found.wait(id_, None if timeout is None else max(0.0, timeout - (monotonic() - begun)))

    async def _install(self) -> InstallReport:
        conn = await connect(self._config, session=True, name="horsies schema")
        try:
            return await install(conn, notify=self._config.notify) if self._installs else await look(conn)
        finally:
            await conn.close()


def can_exist(id_: str) -> bool:
    """Whether this can be the id of a task or a workflow."""
    return isinstance(id_, str) and 0 < len(id_) <= LONGEST_ID and id_.isprintable()


async def ping_database(hub: Hub) -> DatabasePing:
    """How long an empty statement takes."""
    async with hub.connection() as conn:
        begun = perf_counter()
        await conn.execute("SELECT 1")
        return DatabasePing(latency_ms=(perf_counter() - begun) * 1000)


async def ping_workers(
    hub: Hub, target_worker_id: str | None, timeout_seconds: float, min_responses: int | None
) -> list[WorkerPong]:
    """The workers that answer in time. The wait ends early when the named worker, or `min_responses` workers, have
    answered."""
    enough = 1 if target_worker_id is not None and min_responses is None else min_responses
    nonce = uuid.uuid4().hex
    pongs: dict[str, WorkerPong] = {}
    complete = asyncio.Event()
    begun = perf_counter()  # the answer to an earlier ping may arrive before ours is sent

    def on_pong(payload: str) -> None:
        if (pong := _read(payload, nonce, begun)) is not None:
            pongs.setdefault(pong.worker_id, pong)
            if enough is not None and len(pongs) >= enough:
                complete.set()

    await hub.listen()
    hub.listener.subscribe(PONG, on_pong)
    try:
        async with asyncio.timeout(LISTEN_SECONDS):
            await hub.listener.in_step()
        begun = perf_counter()
        async with hub.connection() as conn:
            await conn.execute(
                load("workers/ping"), {"question": json.dumps({"id": nonce, "target": target_worker_id})}
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await complete.wait()
    finally:
        hub.listener.unsubscribe(PONG, on_pong)
    return sorted(pongs.values(), key=lambda pong: pong.worker_id)


def _read(payload: str, nonce: str, begun: float) -> WorkerPong | None:
    """The reply to our question; other messages on the channel belong to others."""
    try:
        fields = json.loads(payload)
        if fields["id"] != nonce:
            return None
        latency_ms = (perf_counter() - begun) * 1000
        return WorkerPong(str(fields["worker_id"]), str(fields["hostname"]), int(fields["pid"]), latency_ms)
    except (ValueError, TypeError, KeyError):
        return None
