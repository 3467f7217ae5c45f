"""Oban for Python, embedded as its documentation shows, with the JSON and the loop that its command line sets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from oban import Oban, Record, worker
from oban.schema import install as install_schema
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg_pool import AsyncConnectionPool

from benchmarks.peers import marks
from benchmarks.peers.catalog import Settings
from benchmarks.peers.gate import Gate

POLL_S = 0.001

set_json_dumps(orjson.dumps)
set_json_loads(orjson.loads)


class Mark:
    async def process(self, job: Any) -> Any:
        marks.hit(job.args["number"])
        return Record(job.args["number"]) if job.args.get("record") else None


Marking: Any = worker(queue="default")(Mark)


@asynccontextmanager
async def pool(url: str) -> AsyncIterator[Any]:
    async with AsyncConnectionPool(url, min_size=2, max_size=10, open=False) as opened:
        yield opened


async def install(url: str) -> None:
    async with pool(url) as connections:
        await install_schema(connections)


async def work(url: str, settings: Settings, gate: Gate) -> None:
    stopped = asyncio.Event()
    gate.on_stop(stopped.set)
    async with pool(url) as connections:
        await gate.wait()
        async with Oban(pool=connections, queues={"default": int(settings["limit"])}):
            await stopped.wait()


class Sender:
    def __init__(self, oban: Any) -> None:
        self._oban = oban

    async def send(self, number: int) -> Any:
        return await self._oban.enqueue(Marking.new({"number": number, "record": True}))

    async def send_many(self, count: int) -> None:
        await self._oban.enqueue_many([Marking.new({"number": number}) for number in range(count)])

    async def result(self, handle: Any) -> None:
        """There is no call that waits, so the sender looks again and again."""
        while "return" not in (await self._oban.get_job(handle.id)).meta:
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def sender(url: str, settings: Settings) -> AsyncIterator[Sender]:
    async with pool(url) as connections, Oban(pool=connections) as oban:
        yield Sender(oban)
