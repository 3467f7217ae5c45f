"""A small asyncio pool of psycopg connections that reports why it cannot connect.

Connections are opened on demand and handed out newest first. At most `keep` of them stay open when idle; the others are
closed after some seconds, so that a steady load finds them open. A failed attempt to connect is reported at once to the
caller that needed it, in the server's own words: a refused connection or a wrong password must not look like a busy
pool.

There are no background tasks, so a pool that a fork left behind (T-67) does nothing, and an idle process costs nothing.
A pool belongs to one loop. Only idle connections can be borrowed from any thread, for a statement on that thread's own
loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import monotonic
from typing import Any, Protocol, TypeAlias, cast

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import RV, PQGen
from psycopg.pq import TransactionStatus
from psycopg.waiting import Ready, Wait

log = logging.getLogger("horsies.pool")

# A connection that was used this recently is trusted. After a longer pause a look at the socket is not enough, because
# a peer that vanished without a word leaves the socket quiet.
TRUSTED_IDLE_SECONDS = 10.0
_READY = {select.POLLIN: Ready.R, select.POLLOUT: Ready.W, select.POLLIN | select.POLLOUT: Ready.RW}


class PoolTimeout(psycopg.OperationalError):
    """Every connection stayed busy for the whole of `pool_timeout`."""


class PoolClosed(psycopg.OperationalError):
    """The pool was closed while, or before, a connection was asked for."""


class Pool:
    """At most `max_size` connections; use `async with pool.connection() as conn`."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[AsyncConnection[Any]]],
        *,
        keep: int,
        max_size: int,
        timeout: float = 30.0,
        max_lifetime: float = 1800.0,
        linger: float = 0.0,
        check: bool = True,
        name: str = "horsies",
    ) -> None:
        self._connect = connect
        self._keep = min(keep, max_size)
        self._max_size = max_size
        self._timeout = timeout
        self._max_lifetime = max_lifetime
        self._linger = linger
        self._check = check
        self.name = name
        self._idle: deque[_Pooled] = deque()
        self._lent: dict[AsyncConnection[Any], _Pooled] = {}
        self._size = 0  # connections that are open or being opened
        self._waiting: deque[asyncio.Future[_Pooled | None]] = deque()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._trimming: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        return self._size

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def has_idle(self) -> bool:
        """Whether there is an idle connection."""
        return bool(self._idle)

    @asynccontextmanager
    async def connection(self, timeout: float | None = None) -> AsyncIterator[AsyncConnection[Any]]:
        conn = await self.getconn(timeout)
        try:
            yield conn
        finally:
            await self.putconn(conn)

    async def getconn(self, timeout: float | None = None) -> AsyncConnection[Any]:
        """A healthy connection; raises what the connection attempt raised, or `PoolTimeout`."""
        self._loop = asyncio.get_running_loop()
        limit = self._timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                pooled = await self._take()
        except TimeoutError:
            raise PoolTimeout(self._why_late(limit)) from None
        self._lent[pooled.conn] = pooled
        return pooled.conn

    async def putconn(self, conn: AsyncConnection[Any]) -> None:
        pooled = self._lent.pop(conn)
        if not conn.closed and conn.pgconn.transaction_status != TransactionStatus.IDLE:
            await _settle(conn)
        self._give_back(pooled)

    def borrow(self) -> AsyncConnection[Any] | None:
        """An idle connection that needs no check, if there is one. It can be called from any thread; `bring_back`
        returns the connection."""
        pooled = self._pop_idle()
        if pooled is None:
            return None
        if not self._is_trusted(pooled):
            self._lay_down(pooled)  # the loop looks at it
            return None
        self._lent[pooled.conn] = pooled
        return pooled.conn

    def bring_back(self, conn: AsyncConnection[Any]) -> None:
        """Return a connection from `borrow`, on any thread."""
        pooled = self._lent.pop(conn)
        if conn.pgconn.transaction_status == TransactionStatus.IDLE:
            pooled.returned = monotonic()
            self._lay_down(pooled)
        else:
            conn.pgconn.finish()  # it was cut off in the middle of a statement
            self._tell_loop(self._discard, pooled)

    async def close(self) -> None:
        """Close idle connections now and the others when they are returned; waiting callers get `PoolClosed`."""
        self._closed = True
        while self._waiting:
            _wake(self._waiting.popleft(), None)
        while (pooled := self._pop_idle()) is not None:
            self._discard(pooled)
        if self._trimming is not None:
            self._trimming.cancel()

    async def _take(self) -> _Pooled:
        while True:
            if self._closed:
                raise PoolClosed(f"the connection pool {self.name!r} is closed")
            if (pooled := self._pop_idle()) is not None:
                if await self._usable(pooled):
                    return pooled
            elif self._size < self._max_size:
                return await self._open()
            elif (handed := await self._wait_in_line()) is not None:
                return handed

    async def _open(self) -> _Pooled:
        self._size += 1
        try:
            return _Pooled(await self._connect(), expires=monotonic() + self._max_lifetime)
        except BaseException:
            self._size -= 1
            self._wake_one()  # the next caller tries by itself, and learns the reason itself
            raise

    async def _wait_in_line(self) -> _Pooled | None:
        """A connection that was returned, or None when a place became free."""
        place: asyncio.Future[_Pooled | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        if self._idle:  # another thread has just returned one
            self._wake_one()
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                # The caller was served and cancelled at the same moment. The connection is passed on, or it would be
                # lost.
                handed = place.result()
                if handed is None:
                    self._wake_one()
                else:
                    self._give_back(handed)
            raise

    async def _usable(self, pooled: _Pooled) -> bool:
        """Whether an idle connection can be lent; if not, it has been discarded."""
        try:
            if await self._alive(pooled):
                return True
        except BaseException:
            self._discard(pooled)
            raise
        self._discard(pooled)
        return False

    async def _alive(self, pooled: _Pooled) -> bool:
        conn = pooled.conn
        if self._is_trusted(pooled):
            return True
        if conn.closed or monotonic() > pooled.expires:
            return False
        try:
            await conn.execute("")  # it passes over a stray notice, and fails after a goodbye
        except psycopg.Error:
            return False
        return True

    def _is_trusted(self, pooled: _Pooled) -> bool:
        """Whether it can be lent without asking the server."""
        now = monotonic()
        if pooled.conn.closed or now > pooled.expires:
            return False
        return not self._check or (now - pooled.returned < TRUSTED_IDLE_SECONDS and _is_quiet(pooled.conn))

    def _pop_idle(self) -> _Pooled | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _lay_down(self, pooled: _Pooled) -> None:
        """Make a connection idle, from any thread."""
        self._idle.append(pooled)
        if self._waiting:
            self._tell_loop(self._wake_one)
        while self._closed and (left := self._pop_idle()) is not None:
            left.conn.pgconn.finish()  # the pool was closed meanwhile, so nobody else closes this one

    def _tell_loop(self, call: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and so have its callers
            if self._loop is not None:
                self._loop.call_soon_threadsafe(call, *args)

    def _give_back(self, pooled: _Pooled) -> None:
        pooled.returned = monotonic()
        if self._closed or pooled.conn.closed or pooled.returned > pooled.expires:
            self._discard(pooled)
            return
        while self._waiting:
            if _wake(self._waiting.popleft(), pooled):
                return
        if len(self._idle) < self._keep:
            self._idle.append(pooled)
        elif self._linger and self._loop is not None:
            self._idle.append(pooled)
            self._trim_later(self._linger)
        else:
            self._discard(pooled)

    def _trim_later(self, seconds: float) -> None:
        """One timer is enough: a busy pool gets a connection back a thousand times a second."""
        if self._trimming is None and self._loop is not None:
            self._trimming = self._loop.call_later(seconds, self._trim)

    def _trim(self) -> None:
        """Close connections that nobody has needed for a while; the most recently used ones are at the right end."""
        self._trimming = None
        while len(self._idle) > self._keep and (left := self._idle[0].returned + self._linger - monotonic()) <= 0:
            self._discard(self._idle.popleft())
        if len(self._idle) > self._keep:
            self._trim_later(left)

    def _discard(self, pooled: _Pooled) -> None:
        self._size -= 1
        pooled.conn.pgconn.finish()  # the same as conn.close(), but without an await
        self._wake_one()

    def _wake_one(self) -> None:
        while self._waiting:
            if _wake(self._waiting.popleft(), None):
                return

    def _why_late(self, limit: float) -> str:
        if len(self._lent) >= self._max_size:
            return f"all {self._max_size} connections of the pool {self.name!r} stayed busy for {limit:g} s"
        return f"the database did not answer within {limit:g} s"


class _Pooled:
    """A connection with what the pool remembers about it."""

    __slots__ = ("conn", "expires", "returned")

    def __init__(self, conn: AsyncConnection[Any], *, expires: float) -> None:
        self.conn = conn
        self.expires = expires
        self.returned = monotonic()


def _wake(place: asyncio.Future[_Pooled | None], pooled: _Pooled | None) -> bool:
    if place.done():
        return False
    place.set_result(pooled)
    return True


async def _settle(conn: AsyncConnection[Any]) -> None:
    """End a transaction that the caller left open; close the connection if it is still busy."""
    try:
        if conn.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            log.warning("a transaction was left open and has been rolled back")
            await conn.rollback()
            return
    except psycopg.Error as problem:
        log.debug("rollback of a returned connection failed: %s", problem)
    conn.pgconn.finish()


def _is_quiet(conn: AsyncConnection[Any]) -> bool:
    """Whether the socket has nothing to read. An idle server sends nothing, so a readable socket may mean that the
    server has said goodbye, or that the stream has ended. This costs one system call instead of a round trip."""
    poll = select.poll()
    poll.register(conn.pgconn.socket, select.POLLIN | select.POLLERR | select.POLLHUP)
    return not poll.poll(0)


class PromptConnection(AsyncConnection[Any]):
    """Statements that are sent together need no turn of the event loop for each: psycopg waits before every one of them
    until the socket can take it, which it almost always can. That is asked of the socket itself here."""

    is_in_one_go = False

    def transaction(self, savepoint_name: str | None = None, force_rollback: bool = False) -> Any:
        if self.is_in_one_go:  # psycopg does not know of that transaction, and its end would end the other one too
            raise RuntimeError("there is no transaction inside one that is sent in one go")
        return super().transaction(savepoint_name, force_rollback)

    async def wait(self, gen: PQGen[RV], *terms: Any, **named_terms: Any) -> RV:
        return await super().wait(_promptly(gen, self.pgconn.socket), *terms, **named_terms)


def _promptly(gen: PQGen[RV], socket: int) -> PQGen[RV]:
    """Answer at once those waits of the generator that are over before they begin."""
    try:
        wait, look = next(gen), None
        while True:
            ready = Ready.NONE
            if wait & Wait.W:
                if look is None:
                    look = select.poll()
                    look.register(socket, select.POLLIN | select.POLLOUT)
                for _, found in look.poll(0):
                    ready = _READY.get(found, Ready.NONE)
            wait = gen.send(ready or (yield wait))
    except StopIteration as end:
        return cast(RV, end.value)


class Connections(Protocol):
    """Lends one connection at a time, in autocommit mode."""

    def connection(self) -> AbstractAsyncContextManager[Connection]: ...


Connection: TypeAlias = AsyncConnection[Any]
