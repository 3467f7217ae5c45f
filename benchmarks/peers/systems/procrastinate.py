"""Procrastinate with its asynchronous connector and coroutine tasks, the way that it recommends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from procrastinate import App, PsycopgConnector

from benchmarks.peers import marks
from benchmarks.peers.catalog import Settings
from benchmarks.peers.gate import Gate


def application(url: str) -> tuple[Any, Any]:
    async def mark(number: int) -> None:
        marks.hit(number)

    app = App(connector=PsycopgConnector(conninfo=url, min_size=2, max_size=20))
    return app, app.task(name="mark")(mark)


async def install(url: str) -> None:
    app, _ = application(url)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def work(url: str, settings: Settings, gate: Gate) -> None:
    app, _ = application(url)
    async with app.open_async():
        await gate.wait()
        await app.run_worker_async(concurrency=int(settings["concurrency"]))


class Sender:
    def __init__(self, task: Any) -> None:
        self._task = task

    async def send(self, number: int) -> Any:
        return await self._task.defer_async(number=number)

    async def send_many(self, count: int) -> None:
        await self._task.batch_defer_async(*({"number": number} for number in range(count)))

    async def result(self, handle: Any) -> None:
        raise NotImplementedError("it has no results")


@asynccontextmanager
async def sender(url: str, settings: Settings) -> AsyncIterator[Sender]:
    app, task = application(url)
    async with app.open_async():
        yield Sender(task)
