"""A PostgreSQL server of the proof's own, made to lose what was committed asynchronously when it crashes, and the
connections to it, which can be made to break at any statement.

The keeper of the embedded server starts it again after each crash. Its writer of the log sleeps as long as it may, so
that asynchronous commits really stay in memory until a synchronous one takes them along.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor

from horsies.core.db.connections import BY_INDEX, IN_BULK
from horsies.core.embedded import ensure_running, stop
from horsies.core.schema.install import install
from horsies.core.sql import load
from tests.embedded_support import is_gone
from tests.support import eventually_sync

T = TypeVar("T")

SETTINGS = {
    "fsync": "off",  # the machine does not crash, only the server: what it has written down is kept
    "full_page_writes": "off",
    "autovacuum": "off",
    "wal_writer_delay": "10s",
    "wal_writer_flush_after": "1GB",
    "bgwriter_lru_maxpages": "0",
    "checkpoint_timeout": "1d",
    "max_connections": "40",
    "shared_buffers": "32MB",
}
BULK = " (bulk)"
TABLES = "horsies_tasks, horsies_task_attempts, horsies_heartbeats, horsies_workflow_tasks"


class ConnectionBroke(psycopg.OperationalError):
    """The connection was cut, as planned."""


class Connection(AsyncConnection[Any]):
    """Breaks before its next statement but `breaks_after`, if that is set: the server rolls back what was open."""

    breaks_after: int | None = None
    pid = 0

    async def execute(self, query: Any, params: Any = None, **options: Any) -> AsyncCursor[Any]:
        if self.breaks_after is not None:
            if self.breaks_after == 0:
                await self.close()
                raise ConnectionBroke
            self.breaks_after -= 1
        return await super().execute(query, params, **options)


class Server:
    """`run` a coroutine that uses its connections; `crash` it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._url = ensure_running(directory, settings=SETTINGS)
        self._runner = asyncio.Runner()
        self._connections: dict[str, Connection] = {}
        self.run(self._install())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._hang_up())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def connection(self, name: str) -> Connection:
        """The connection of this user of the server; a new one if it was lost. Workers move batches over another."""
        conn = self._connections.get(name)
        if conn is None or conn.closed:
            options = IN_BULK if name.endswith(BULK) else BY_INDEX
            conn = await Connection.connect(self._url, autocommit=True, options=options)
            conn.pid = conn.info.backend_pid
            self._connections[name] = conn
        conn.breaks_after = None
        return conn

    async def cut(self, name: str, *, in_transaction: bool) -> None:
        """End this connection. If a transaction was open, wait until the server has rolled it back, so that its locks
        do not outlive the step."""
        conn = self._connections.pop(name)
        await conn.close()
        watch = await self.connection("watch")
        while in_transaction:
            alive = await watch.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [conn.pid])
            in_transaction = await alive.fetchone() is not None

    def crash(self, sig: signal.Signals) -> None:
        """SIGQUIT is what `pg_ctl stop -m immediate` sends; SIGKILL leaves not even that much time."""
        pid = int((self._directory / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, sig)
        self.run(self._hang_up())
        eventually_sync(lambda: is_gone(pid), what="the end of the server", every=0.005)
        self._url = ensure_running(self._directory)

    async def clear(self) -> None:
        conn = await self.connection("clear")
        await conn.execute(f"TRUNCATE {TABLES}")
        await conn.execute(load("caps/start"), {"queues": ["a", "b", "*"]})  # while nobody is at work

    async def _install(self) -> None:
        async with await AsyncConnection.connect(self._url) as conn:
            await install(conn)

    async def _hang_up(self) -> None:
        while self._connections:
            _, conn = self._connections.popitem()
            with contextlib.suppress(psycopg.Error):
                await conn.close()


@contextlib.contextmanager
def own_server() -> Iterator[Server]:
    """Not in pytest's own temporary directory: that one is closed to the user who runs the server for root."""
    directory = Path(tempfile.mkdtemp(prefix="horsies-proof-")).resolve()
    directory.chmod(0o711)
    log = logging.getLogger("psycopg")
    level = log.level
    log.setLevel(logging.ERROR)  # connections break on purpose
    try:
        with Server(directory) as server:
            yield server
    finally:
        log.setLevel(level)
        stop(directory)
        shutil.rmtree(directory, ignore_errors=True)
