"""PgQueuer on asyncpg, the driver that its documentation puts first. Its command line runs on uvloop, as we do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.core.completion import CompletionWatcher
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from benchmarks.peers import marks
from benchmarks.peers.catalog import Settings
from benchmarks.peers.gate import Gate


async def install(url: str) -> None:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    await queries.optimize_autovacuum()
    await connection.close()


async def work(url: str, settings: Settings, gate: Gate) -> None:
    async def mark(job: Any) -> None:
        marks.hit(int(job.payload))

    connection = await asyncpg.connect(url)
    pgq = PgQueuer(AsyncpgDriver(connection))
    pgq.entrypoint("mark")(mark)
    gate.on_stop(pgq.shutdown.set)
    await gate.wait()
    await pgq.run(batch_size=int(settings["batch_size"]))


class Sender:
    def __init__(self, url: str, queries: Any, stack: AsyncExitStack) -> None:
        self._url, self._queries, self._stack = url, queries, stack
        self._watcher: Any = None

    async def send(self, number: int) -> Any:
        (job,) = await self._queries.enqueue("mark", b"%d" % number)
        return job

    async def send_many(self, count: int) -> None:
        payloads = [b"%d" % number for number in range(count)]
        await self._queries.enqueue(["mark"] * count, payloads, [0] * count)

    async def result(self, handle: Any) -> None:
        """No value comes back: it is the status that the sender sees."""
        if self._watcher is None:
            self._watcher = await self._watch()
        assert await self._watcher.wait_for(handle) == "successful"

    async def _watch(self) -> Any:
        """On a connection of its own, and only when needed: it is told of every change in the queue."""
        driver = AsyncpgDriver(await connect(self._url, self._stack))
        watcher = CompletionWatcher(driver, queries=Queries(driver), debounce=timedelta(milliseconds=1))
        return await self._stack.enter_async_context(watcher)


@asynccontextmanager
async def sender(url: str, settings: Settings) -> AsyncIterator[Sender]:
    async with AsyncExitStack() as stack:
        yield Sender(url, Queries(AsyncpgDriver(await connect(url, stack))), stack)


async def connect(url: str, stack: AsyncExitStack) -> Any:
    connection = await asyncpg.connect(url)
    stack.push_async_callback(connection.close)
    return connection
