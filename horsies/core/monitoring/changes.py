"""What changes right now, for whoever watches (M-75): one session that listens to the monitoring channels of D-61, and
a mark in the database that says that somebody listens. Both exist only while there are watchers, so nobody watching
costs nothing.

Changes are merged for a quarter of a second and passed on as ids, never as data. Of more than `MOST_IDS` changes only
"many" is told, as an empty list. After a lost session everything may have changed, which is told in the same way. A
feed lives on the loop of its broker; its watchers may be on any loop and thread.

`read_schema_version` is here too: what watches must know whether the tables are those of this code (M-70).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from psycopg import AsyncConnection

from horsies.core.db import Backoff, Listener, SchemaInitFailed, as_result, cancel_all, connect, describe
from horsies.core.monitoring.queries import no_answer
from horsies.core.schema.install import NoTables, look
from horsies.core.store import watching

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

log = logging.getLogger("horsies.monitor")
Topic: TypeAlias = Literal["tasks", "workflows", "workers"]
Changes: TypeAlias = Mapping[Topic, tuple[str, ...]]
CHANNELS: Mapping[str, Topic] = {
    "horsies_task_status": "tasks",
    "horsies_workflow_status": "workflows",
    "horsies_worker_state": "workers",
}
MANY: tuple[str, ...] = ()
MERGED_S = 0.25
MOST_IDS = 200
LONGEST_ID = 255
MARK_S = 60.0  # a mark is valid for so long; that of a killed program costs the others something until then
RENEW_S = 20.0
RETRY_S = 2.0
JOIN_S = 10.0
WITHDRAW_S = 2.0
BACKOFF = Backoff(initial=0.25, maximum=5.0)
NO_SESSIONS = "no notification arrives through a transaction pooler; set session_database_url to an address without one"


class MergedChanges:
    """The changed ids of each topic, at most `MOST_IDS`; more are told as `MANY`."""

    def __init__(self) -> None:
        self._ids: dict[Topic, dict[str, None] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._ids)

    def add(self, topic: Topic, ids: tuple[str, ...]) -> None:
        known = self._ids.setdefault(topic, {})
        if known is None:
            return
        known.update(dict.fromkeys(ids))
        if not ids or len(known) > MOST_IDS:
            self._ids[topic] = None

    def add_all(self, changes: Changes) -> None:
        for topic, ids in changes.items():
            self.add(topic, ids)

    def take(self) -> Changes:
        """What has been added since the last time."""
        found, self._ids = self._ids, {}
        return {topic: MANY if ids is None else tuple(ids) for topic, ids in found.items()}


class ChangeFeed:
    """Calls `tell` on the broker's loop with what has changed, while anybody watches."""

    def __init__(self, broker: PostgresBroker, tell: Callable[[Changes], None]) -> None:
        self._broker = broker
        self._tell = tell
        self._holder = f"monitor:{socket.gethostname()[:60]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._watchers: set[object] = set()
        self._session: _FeedSession | None = None
        self._turn: asyncio.Lock | None = None

    @property
    def is_up(self) -> bool:
        """Whether changes are heard right now."""
        session = self._session
        return session is not None and session.is_up

    async def join(self, watcher: object) -> str | None:
        """One more watcher. Returns after the first attempt to listen, with the reason if it failed. Whatever comes of
        it, the watcher must `leave`."""
        if not self._broker.config.has_sessions:
            return NO_SESSIONS
        try:
            return await self._broker.bridge.call(partial(self._join, watcher))
        except Exception as problem:
            return self._broker.config.redact(describe(problem))

    def leave(self, watcher: object) -> None:
        """One watcher less; with the last one the session and the mark go. It does not wait for that."""
        with contextlib.suppress(Exception):  # a bridge that has ended has closed everything already
            self._broker.bridge.begin(partial(self._leave, watcher))

    async def close(self) -> None:
        """There are no watchers any more; returns when the session and the mark are gone."""
        if self._session is not None:
            with contextlib.suppress(Exception):
                await self._broker.bridge.call(self._leave_all)

    async def _join(self, watcher: object) -> str | None:
        self._watchers.add(watcher)
        await self._settle()
        session = self._session
        return "nobody watches any more" if session is None else await session.until_tried()

    async def _leave(self, watcher: object) -> None:
        self._watchers.discard(watcher)
        await self._settle()

    async def _leave_all(self) -> None:
        self._watchers.clear()
        await self._settle()

    async def _settle(self) -> None:
        """Have a session exactly if there are watchers. One at a time, because each takes some round trips."""
        loop = asyncio.get_running_loop()
        if self._session is not None and self._session.loop is not loop:
            self._session, self._turn = None, None  # the broker was closed meanwhile, with everything on its loop
        self._turn = self._turn or asyncio.Lock()
        async with self._turn:
            if self._watchers and self._session is None:
                self._session = _FeedSession(self._broker, self._holder, self._tell)
            elif not self._watchers and self._session is not None:
                session, self._session = self._session, None
                await session.end()


class _FeedSession:
    """From the first watcher to the last one: the listener, the mark and the timer that merges."""

    def __init__(self, broker: PostgresBroker, holder: str, tell: Callable[[Changes], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self._broker = broker
        self._holder = holder
        self._tell = tell
        self._changes = MergedChanges()
        self._timer: asyncio.TimerHandle | None = None
        self._problem: str | None = None
        self._is_announced = False
        self._was_up = False
        self._may_be_marked = False
        self._tried = asyncio.Event()
        self._renew = asyncio.Event()
        self._listener = Listener(self._connect, backoff=BACKOFF, name="monitor listener")
        for channel, topic in CHANNELS.items():
            self._listener.subscribe(channel, partial(self._changed, topic))
        self._listener.on_reconnect(self._listens_anew)
        self._listener.on_lost(self._lost)
        self._task = asyncio.create_task(self._keep_announced(), name="horsies monitor mark")

    @property
    def is_up(self) -> bool:
        return self._listener.connected and self._is_announced

    async def until_tried(self) -> str | None:
        """Wait for the first attempt; the reason if it failed."""
        try:
            async with asyncio.timeout(JOIN_S):
                await self._tried.wait()
        except TimeoutError:
            return "the database did not answer in time"
        return None if self.is_up else self._problem or "the listening session was lost"

    async def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await cancel_all([self._task])
        await self._listener.stop()
        if self._may_be_marked:
            with contextlib.suppress(Exception):  # otherwise the mark becomes invalid by itself
                async with asyncio.timeout(WITHDRAW_S), self._broker.hub.connection() as conn:
                    await watching.withdraw(conn, self._holder)

    async def _connect(self) -> AsyncConnection[Any]:
        return await connect(self._broker.config, session=True, name="horsies monitor listener")

    async def _keep_announced(self) -> None:
        """The session listens first, so that no notification is sent in vain."""
        await self._listener.start()
        while True:
            self._renew.clear()
            pause = RENEW_S
            if self._listener.connected:
                pause = RENEW_S if await self._announce() else RETRY_S
            elif self._listener.last_error is not None:
                self._problem = self._in_words(self._listener.last_error)
            self._tried.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._renew.wait()

    async def _announce(self) -> bool:
        self._may_be_marked = True
        try:
            async with self._broker.hub.connection() as conn:
                await watching.announce(conn, self._holder, MARK_S)
        except Exception as problem:
            self._problem, self._is_announced = self._in_words(problem), False
            return False
        if self._was_up and not self._is_announced:
            self._everything_changed()  # what changed meanwhile was not heard of
        self._is_announced = self._was_up = True
        return True

    def _listens_anew(self) -> None:
        """After a crash of the server the mark is gone too, because its table is unlogged."""
        self._is_announced = False
        self._renew.set()

    def _lost(self) -> None:
        self._is_announced = False

    def _everything_changed(self) -> None:
        for topic in CHANNELS.values():
            self._changed(topic)

    def _changed(self, topic: Topic, payload: str | None = None) -> None:
        """Every role may notify, so what does not look like an id only means that something has changed."""
        is_id = payload is not None and 0 < len(payload) <= LONGEST_ID and payload.isprintable()
        self._changes.add(topic, (payload,) if is_id and payload is not None else MANY)
        if self._timer is None:
            self._timer = self.loop.call_later(MERGED_S, self._pass_on)

    def _pass_on(self) -> None:
        self._timer = None
        self._tell(self._changes.take())

    def _in_words(self, problem: BaseException) -> str:
        return self._broker.config.redact(describe(problem))


@as_result(no_answer)
async def read_schema_version(broker: PostgresBroker) -> int | None:
    """The version that the tables record; `Ok(None)` if there are no tables. Nothing is created or migrated."""
    return await broker.bridge.call(partial(_schema_version, broker))


async def _schema_version(broker: PostgresBroker) -> int | None:
    try:
        async with broker.hub.connection() as conn:
            return (await look(conn)).version
    except NoTables:
        return None
    except SchemaInitFailed as problem:
        if isinstance(problem.__cause__, NoTables):
            return None
        raise
