"""One connection that listens for the whole process: it issues LISTEN, notices silence, reconnects, issues LISTEN
again, and tells its owner to look.

Notifications only save time; reading the tables is what counts. So this module promises little: while `connected`, each
notification reaches its callbacks; after every new session `on_reconnect` is called, because notifications in between
were missed. Notifications are read in bulk directly from libpq, because a busy system sends thousands of them a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from psycopg import AsyncConnection, Notify, sql

from horsies.core.brokers.answers import answered_within
from horsies.core.brokers.backoff import Backoff
from horsies.core.brokers.cancelling import cancel_all

log = logging.getLogger("horsies.listener")

Callback = Callable[[str], None]
SessionHook = Callable[[AsyncConnection[Any]], Awaitable[None]]


class Listener:
    """Subscribe first and then `await start()`, or the other way round."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[AsyncConnection[Any]]],
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

    async def start(self) -> None:
        """Start, and return after the first attempt to connect. It never raises: see `connected` and `last_error`."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep_listening(), name=f"horsies {self._name}")
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
        """Wait until every subscription made so far is in effect."""
        await self._in_step.wait()

    def _channels_changed(self) -> None:
        self._in_step.clear()
        self._wake.set()

    async def _keep_listening(self) -> None:
        failures = 0
        while True:
            try:
                await self._session()
            except Exception as problem:
                failures = 1 if self.connected else failures + 1
                self._session_lost(problem, failures)
                await asyncio.sleep(self._backoff.delay(failures))

    def _session_lost(self, problem: Exception, failures: int) -> None:
        # One line when it is lost; repeating it with every failed try would flood the log of a long outage.
        level = logging.WARNING if failures == 1 else logging.DEBUG
        log.log(level, "%s: connection lost, trying again: %s", self._name, " ".join(str(problem).split()))
        self.connected = False
        self.last_error = problem
        self._in_step.clear()
        self._tried.set()
        for callback in self._lost_hooks:
            _guarded(callback)

    async def _session(self) -> None:
        conn = await self._connect()
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
            self._drain(conn)  # what arrived together with the answer is already in libpq's buffer

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
            # A socket at its end stays readable; leaving the reader on it would spin.
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


def _guarded(callback: Callable[..., None], *args: str) -> None:
    """An exception in one subscriber must not cost the others their notifications."""
    try:
        callback(*args)
    except Exception:
        log.exception("a notification callback failed")
