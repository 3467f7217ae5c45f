"""Combines sends that wait at the same moment into one INSERT and one commit.

A single send is written at once, in the caller's own thread, which saves two thread switches. While it is being
committed, the next sends of all threads and loops of the process collect, and follow as one statement; so a busy sender
is limited by its own work and not by commits. This part runs on the loop of the bridge.
"""

import asyncio
import threading
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import InvalidStateError
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial
from typing import Any, Protocol, TypeAlias

from psycopg import AsyncConnection

from horsies.core.db import Reply, by_halves, is_about_content
from horsies.core.producer import enqueue
from horsies.core.store.sends import Rows, Send, Statement
from horsies.core.types import is_blocking

LANES = 2  # statements under way at once: one commits while the next is on its way
Waiting: TypeAlias = tuple[Send, Reply[enqueue.SendOutcome]]


class ConnectionSource(Protocol):
    """Where connections come from."""

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]: ...

    def borrow(self) -> AsyncConnection[Any] | None: ...

    def bring_back(self, conn: AsyncConnection[Any], /) -> None: ...


class Writer:
    """`submit` or `write` one send, `write_all` many; an error is raised only to the sender that caused it."""

    def __init__(self, connections: ConnectionSource) -> None:
        self._connections = connections
        self._waiting: deque[Waiting] = deque()
        self._lanes: set[asyncio.Task[None]] = set()
        self._alone = threading.Lock()
        # The loop of blocking senders; None while one of them runs it.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    async def write_alone(self, send: Send) -> enqueue.SendOutcome | None:
        """Write a send in the caller's own thread: on its loop, whichever that is, or blocking. None if that cannot be
        done now, because others are sending too or no connection lies idle, or because a caller that blocks does so
        inside a running loop: then `submit` it."""
        blocks = is_blocking()
        if blocks and _get_running_loop() is not None:
            return None
        with self._alone_with_a_connection() as conn:
            if conn is None:
                return None
            return self._run_here(_written(conn, send)) if blocks else await _written(conn, send)

    @contextmanager
    def _alone_with_a_connection(self) -> Iterator[AsyncConnection[Any] | None]:
        if self._lanes or not self._alone.acquire(blocking=False):
            yield None
            return
        try:
            if (conn := self._connections.borrow()) is None:
                yield None
                return
            try:
                yield conn
            finally:
                self._connections.bring_back(conn)
        finally:
            self._alone.release()

    def _run_here(self, work: Coroutine[Any, Any, enqueue.SendOutcome]) -> enqueue.SendOutcome:
        """Run in this thread, on a loop that is kept for the next call."""
        loop = self._loop or asyncio.SelectorEventLoop()
        self._loop = None
        task = loop.create_task(work)
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():  # the sender was interrupted, for example by Ctrl-C
                task.cancel()
                loop.run_until_complete(asyncio.wait([task]))
            raise
        finally:
            if self._is_closed:
                loop.close()
            else:
                self._loop = loop

    def submit(self, send: Send, answer: Reply[enqueue.SendOutcome]) -> None:
        """Accept a send; its sender gets the answer when it is committed."""
        self._waiting.append((send, answer))
        # A lane that has just ended would not see this send any more.
        if sum(not lane.done() for lane in self._lanes) < LANES:
            lane = asyncio.create_task(self._run())
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)

    async def write(self, send: Send) -> enqueue.SendOutcome:
        answer: asyncio.Future[enqueue.SendOutcome] = asyncio.get_running_loop().create_future()
        self.submit(send, answer)
        return await answer

    async def write_all(self, sends: Sequence[Send]) -> list[str]:
        """Write all sends or none, in a separate transaction; return the ids of their rows in the same order."""
        async with self._connections.connection() as conn:
            return await enqueue.run_async(enqueue.in_transaction(enqueue.enqueue_all(sends)), partial(_execute, conn))

    async def close(self) -> None:
        """End the current work; its senders are told that their sends were not confirmed."""
        for lane in self._lanes:
            lane.cancel()
        await asyncio.gather(*self._lanes, return_exceptions=True)
        self._is_closed = True
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()

    async def _run(self) -> None:
        while self._waiting:
            await self._write(self._next_batch())

    def _next_batch(self) -> list[Waiting]:
        batch: list[Waiting] = []
        ids: set[str] = set()
        size = 0
        while self._waiting and len(batch) < enqueue.MAX_ROWS and size < enqueue.MAX_CHARS:
            send, answer = self._waiting[0]
            if send.task_id in ids:
                break  # the same id again: this send must see the result of the first
            self._waiting.popleft()
            ids.add(send.task_id)
            size += enqueue.length(send)
            batch.append((send, answer))
        return batch

    async def _write(self, batch: list[Waiting]) -> None:
        """Write them and answer their senders. Where one is at fault, the others do not suffer for it."""
        try:
            await by_halves(batch, self._write_part, is_refusal=_is_about_one, give_up=_fail)
        except asyncio.CancelledError:
            for waiting in batch:
                _fail(waiting, ConnectionError("the broker was closed before the send was confirmed"))
            raise

    async def _write_part(self, batch: Sequence[Waiting]) -> None:
        try:
            async with self._connections.connection() as conn:
                verdicts = await enqueue.run_async(
                    enqueue.enqueue([send for send, _ in batch]), partial(_execute, conn)
                )
        except Exception as problem:
            if _is_about_one(problem):
                raise
            for waiting in batch:
                _fail(waiting, problem)
        else:
            for (_, answer), verdict in zip(batch, verdicts, strict=True):
                with suppress(InvalidStateError, asyncio.InvalidStateError):  # the sender has given up
                    answer.set_result(verdict)


async def _written(conn: AsyncConnection[Any], send: Send) -> enqueue.SendOutcome:
    (verdict,) = await enqueue.run_async(enqueue.enqueue([send]), partial(_execute, conn))
    return verdict


async def _execute(conn: AsyncConnection[Any], statement: Statement) -> Rows:
    cursor = await conn.execute(statement.text, statement.params, prepare=statement.params is not None)
    return await cursor.fetchall() if statement.params is not None else ()


def _is_about_one(problem: Exception) -> bool:
    return is_about_content(problem) or isinstance(problem, TypeError | ValueError)


def _fail(waiting: Waiting, problem: Exception) -> None:
    with suppress(InvalidStateError, asyncio.InvalidStateError):
        waiting[1].set_exception(problem)
