"""One connection that listens for the whole process: it issues LISTEN, notices silence, reconnects, issues LISTEN
again, and tells its owner to look. Notifications only save time; reading the tables is what counts. So this module
promises little: while `connected`, each notification reaches its callbacks; after every new session `on_reconnect` is
called, because notifications in between were missed. Notifications are read in bulk directly from libpq, because a busy
system sends thousands of them a second.

Three helpers serve every long-lived connection. `answered_within` waits for the reply to a statement for a limited
time, whatever has happened to the server. `Backoff` says how long to wait before the next try (W-60). `cancel_all`
cancels asyncio tasks reliably.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, Notify, sql

T = TypeVar("T")
Callback = Callable[[str], None]
SessionHook = Callable[[AsyncConnection[Any]], Awaitable[None]]
log = logging.getLogger("horsies.listener")
LETTING_GO_S = 1.0
AGAIN_S = 0.25


class Listener:
    """Subscribe first and then `await start()`, or the other way round. Without `connect` there is no session to listen
    in (O-01): nothing is ever heard, and the owner polls."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[AsyncConnection[Any]]] | None,
        *,
        backoff: Backoff | None = None,
        keepalive: float = 30.0,
        keepalive_timeout: float = 10.0,
        name: str = "listener",
    ) -> None:
        self._connect = connect
        self._backoff = backoff or Backoff()
        self._keepalive = keepalive
        self._keepalive_timeout = keepalive_timeout
        self._name = name
        self._callbacks: dict[str, list[Callback]] = {}
        self._by_bytes: dict[bytes, list[Callback]] = {}
        self._listening: set[str] = set()
        self._reconnect_hooks: list[Callable[[], None]] = []
        self._session_hooks: list[SessionHook] = []
        self._lost_hooks: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._tried = asyncio.Event()
        self._in_step = asyncio.Event()
        self._heard = 0
        self._broken: Exception | None = None
        self.connected = False
        self.last_error: Exception | None = None

    def subscribe(self, channel: str, callback: Callback) -> None:
        """Call `callback(payload)` for each notification; LISTEN is issued at once, or with the next session."""
        callbacks = self._callbacks.setdefault(channel, [])
        callbacks.append(callback)
        self._by_bytes[channel.encode()] = callbacks
        self._channels_changed()

    def unsubscribe(self, channel: str, callback: Callback) -> None:
        callbacks = self._callbacks.get(channel, [])
        if callback in callbacks:
            callbacks.remove(callback)
        if not callbacks and self._callbacks.pop(channel, None) is not None:
            del self._by_bytes[channel.encode()]
            self._channels_changed()

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        """Call this after LISTEN of each new session, including the first: the owner looks for what it may have
        missed."""
        self._reconnect_hooks.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call this when a session is lost or could not be opened."""
        self._lost_hooks.append(callback)

    def on_session(self, callback: SessionHook) -> None:
        """Await `callback(conn)` on each new session before LISTEN, for example for a lock that lives as long as the
        session."""
        self._session_hooks.append(callback)

    @property
    def is_off(self) -> bool:
        """Whether there is no session to listen in."""
        return self._connect is None

    async def start(self) -> None:
        """Start, and return after the first attempt to connect. It never raises: see `connected` and `last_error`."""
        if self._connect is None:
            return
        if self._task is None:
            self._task = asyncio.create_task(self._keep_listening(self._connect), name=f"horsies {self._name}")
        await self._tried.wait()

    async def stop(self) -> None:
        if self._task is None:
            return
        await cancel_all([self._task])
        self._task = None

    @property
    def heard(self) -> int:
        """How many notifications have been received."""
        return self._heard

    async def in_step(self) -> None:
        """Wait until every subscription made so far is in effect, if that is possible at all."""
        if not self.is_off:
            await self._in_step.wait()

    def _channels_changed(self) -> None:
        self._in_step.clear()
        self._wake.set()

    async def _keep_listening(self, connect: Callable[[], Awaitable[AsyncConnection[Any]]]) -> None:
        failures = 0
        while True:
            try:
                await self._session(await connect())
            except Exception as problem:
                failures = 1 if self.connected else failures + 1
                self._session_lost(problem, failures)
                await asyncio.sleep(self._backoff.delay(failures))

    def _session_lost(self, problem: Exception, failures: int) -> None:
        # The loss is logged once. A line for every failed try would flood the log of a long outage.
        level = logging.WARNING if failures == 1 else logging.DEBUG
        log.log(level, "%s: connection lost, trying again: %s", self._name, " ".join(str(problem).split()))
        self.connected = False
        self.last_error = problem
        self._in_step.clear()
        self._tried.set()
        for callback in self._lost_hooks:
            _guarded(callback)

    async def _session(self, conn: AsyncConnection[Any]) -> None:
        try:
            conn.add_notify_handler(self._on_notify)
            for prepare in self._session_hooks:
                await prepare(conn)
            self._listening = set()
            await self._follow_channels(conn)
            if self.last_error is not None:
                log.info("%s: connected again", self._name)
            self.connected, self.last_error, self._broken = True, None, None
            self._tried.set()
            for look_again in self._reconnect_hooks:
                _guarded(look_again)
            await self._serve(conn)
        finally:
            conn.pgconn.finish()

    async def _serve(self, conn: AsyncConnection[Any]) -> None:
        """Read until the session breaks. psycopg reads the same socket while a statement runs, so the two take
        turns."""
        while True:
            heard = self._heard
            if await self._read_until_woken(conn):
                await self._follow_channels(conn)
            elif self._heard == heard:
                await self._ping(conn)
            self._drain(conn)  # notifications that arrived with the answer are already in libpq's buffer

    async def _ping(self, conn: AsyncConnection[Any]) -> None:
        try:
            await answered_within(self._keepalive_timeout, conn, conn.execute("SELECT 1"))
        except TimeoutError as silence:
            raise psycopg.OperationalError(str(silence)) from None

    async def _read_until_woken(self, conn: AsyncConnection[Any]) -> bool:
        """True when woken, False after `keepalive` seconds."""
        loop = asyncio.get_running_loop()
        socket = conn.pgconn.socket
        loop.add_reader(socket, self._on_readable, conn, socket)
        try:
            async with asyncio.timeout(self._keepalive):
                await self._wake.wait()
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(socket)
        if self._broken is not None:
            raise self._broken
        return True

    async def _follow_channels(self, conn: AsyncConnection[Any]) -> None:
        self._wake.clear()
        wanted = set(self._callbacks)
        for channel in sorted(wanted - self._listening):
            await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        for channel in sorted(self._listening - wanted):
            await conn.execute(sql.SQL("UNLISTEN {}").format(sql.Identifier(channel)))
        self._listening = wanted
        if not self._wake.is_set():
            self._in_step.set()

    def _on_readable(self, conn: AsyncConnection[Any], socket: int) -> None:
        try:
            conn.pgconn.consume_input()
            self._drain(conn)
        except psycopg.Error as problem:
            # A socket at its end stays readable, so the loop would call the reader without end.
            asyncio.get_running_loop().remove_reader(socket)
            self._broken = problem
            self._wake.set()

    def _drain(self, conn: AsyncConnection[Any]) -> None:
        notifies, by_channel = conn.pgconn.notifies, self._by_bytes
        while (notice := notifies()) is not None:
            self._heard += 1
            payload = notice.extra.decode("utf-8", "replace")
            for callback in by_channel.get(notice.relname, ()):
                _guarded(callback, payload)

    def _on_notify(self, notice: Notify) -> None:
        """Handle notifications that psycopg itself received while it waited for the reply to a statement."""
        self._heard += 1
        for callback in self._callbacks.get(notice.channel, ()):
            _guarded(callback, notice.payload)


async def answered_within(seconds: float, conn: AsyncConnection[Any], asking: Awaitable[T]) -> T:
    """The reply, or a TimeoutError if there is none in time; in that case the connection is closed.

    If psycopg is cancelled while it waits, it asks the server to cancel and waits for the reply to that, which a silent
    server never sends. Closing the socket does not help either, because the event loop still watches it (libuv then
    ends the whole process). So the stream is shut down: psycopg reads the end of the stream, releases the socket, and
    fails by itself.
    """
    asked = asyncio.ensure_future(asking)
    try:
        await asyncio.wait([asked], timeout=seconds)
        if not asked.done():
            raise TimeoutError(f"no answer for {seconds:g} s")
        return await asked
    finally:
        if not asked.done():
            await _hang_up(conn, asked)


async def _hang_up(conn: AsyncConnection[Any], asked: asyncio.Future[Any]) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(conn.pgconn.socket)) as copy:
        copy.shutdown(socket.SHUT_RDWR)
    asked.add_done_callback(_ignore)
    await asyncio.wait([asked], timeout=LETTING_GO_S)
    if asked.done():
        conn.pgconn.finish()
    else:
        asked.cancel()


def _ignore(asked: asyncio.Future[Any]) -> None:
    """Nobody waits for this reply any more."""
    if not asked.cancelled():
        asked.exception()


@dataclass(frozen=True, slots=True)
class Backoff:
    """`delay(n)` is the delay in seconds before try *n* (1-based): min(maximum, initial * 2^(n-1)), ± `jitter`."""

    initial: float = 0.5
    maximum: float = 30.0
    jitter: float = 0.25

    def delay(self, attempt: int) -> float:
        # The exponent is bounded so that a thousandth try does not overflow a float.
        pause = min(self.maximum, self.initial * 2.0 ** min(attempt - 1, 60))
        return pause * random.uniform(1 - self.jitter, 1 + self.jitter)


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel these tasks repeatedly until they have ended, and ignore their results.

    A single cancellation can be lost: before Python 3.12, `asyncio.wait_for`, which psycopg uses, forgets it if the
    awaited result arrives at the same moment. Also, a cancelled statement may raise its own error, and a retry loop may
    treat that error as a reason to continue.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()  # asyncio would report the exception as never retrieved


def _guarded(callback: Callable[..., None], *args: str) -> None:
    """An exception in one subscriber must not cost the others their notifications."""
    try:
        callback(*args)
    except Exception:
        log.exception("a notification callback failed")
