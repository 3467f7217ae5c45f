"""The ceiling beside our figures: the same statements of the store on the same tables, without our worker around them.

A claim that starts tasks and their end are stages side by side, each lane on a connection of its own, handing batches
on; there are no child processes, no codec and no framing, and nothing is kept safe. What is left between it and the
real drain is the price of processes that run user code, and of everything that makes them exact.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from horsies.core.db.connections import BY_INDEX, IN_BULK, connect
from horsies.core.db.pool import Connection
from horsies.core.models.broker import PostgresConfig
from horsies.core.sql import texts
from horsies.core.store import tasks
from horsies.core.store.tasks import Claimant, ClaimOrder, Seats
from horsies.core.tasks.moves import Claim, Complete

BATCH = 200
# Completing costs most; while one lane waits for its commit the other writes. More lanes gained nothing on two cores.
COMPLETING_LANES = 2
WORKER = "ceiling"
RESULT = '{"ok":null}'
Queue = asyncio.Queue[list[Claim] | None]
Lane = Callable[[Connection], Awaitable[None]]


async def drain(config: PostgresConfig, batch: int = BATCH) -> None:
    """Bring every waiting task to its end."""
    started = Queue(maxsize=4)
    await asyncio.gather(
        _stage(config, BY_INDEX, 1, lambda conn: _claim(conn, batch, started), started, COMPLETING_LANES),
        _stage(config, IN_BULK, COMPLETING_LANES, lambda conn: _complete(conn, started), Queue(), 0),
    )


async def _stage(config: PostgresConfig, options: str, lanes: int, lane: Lane, out: Queue, readers: int) -> None:
    async def run() -> None:
        async with await connect(config, name="ceiling", options=options) as conn:
            await lane(conn)

    await asyncio.gather(*(run() for _ in range(lanes)))
    for _ in range(readers):
        await out.put(None)


def claimant() -> Claimant:
    return Claimant(WORKER, timedelta(minutes=1), enrolled=False)


def claim_order(batch: int) -> ClaimOrder:
    return ClaimOrder(["default"], [batch], [None], batch, batch, None, True, [])


def seats(batch: int) -> Seats:
    """Places for so many tasks in two children."""
    return Seats(
        [1 + place % 2 for place in range(batch)], [1, 2], ["child-1", "child-2"], "host", batch, texts(["noop"])
    )


async def _claim(conn: Connection, batch: int, out: Queue) -> None:
    while rows := await tasks.claim(conn, claimant(), claim_order(batch), seats=seats(batch)):
        await out.put([Claim(row.id, row.claim_seq) for row in rows])


async def _complete(conn: Connection, source: Queue) -> None:
    while (batch := await source.get()) is not None:
        await tasks.apply(conn, WORKER, [Complete(claim, RESULT) for claim in batch])


def runner() -> Callable[[Any], None]:
    """What runs the loop: uvloop where it is installed."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.run
    run: Callable[[Any], None] = importlib.import_module("uvloop").run
    return run
