"""Ours: the app that `horsies worker` runs, and its sender."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.peers import marks
from benchmarks.peers.catalog import Settings
from horsies import AppConfig, Horsies, TaskError, TaskResult

app = Horsies(AppConfig.for_database_url(os.environ["PEERS_URL"]))


@app.task("mark")
def mark(number: int) -> TaskResult[int, TaskError]:
    marks.hit(number)
    return TaskResult(ok=number)


async def install(url: str) -> None:
    (await app.get_broker().ensure_schema_initialized()).unwrap()


class Sender:
    async def send(self, number: int) -> Any:
        return (await mark.send_async(number)).unwrap()

    async def send_many(self, count: int) -> None:
        sent = await mark.send_many_async([(number,) for number in range(count)])
        assert len(sent.unwrap()) == count

    async def result(self, handle: Any) -> None:
        (await handle.get_async(timeout_ms=30_000)).unwrap()


@asynccontextmanager
async def sender(url: str, settings: Settings) -> AsyncIterator[Sender]:
    (await app.get_broker().ensure_schema_initialized()).unwrap()  # connected, as the others are by now
    yield Sender()
    await app.get_broker().close_async()
