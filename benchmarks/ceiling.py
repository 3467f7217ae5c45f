"""The ceiling beside our figures: the same statements of the store in batches, without children, codec or framing.

What is left between it and the real drain is the price of processes that run user code and of everything around them.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from time import perf_counter

from horsies.core.brokers.connections import BY_INDEX, connect
from horsies.core.lifecycle.moves import Claim, Complete
from horsies.core.models.broker import PostgresConfig
from horsies.core.store import tasks
from horsies.core.store.tasks import Claimant, ClaimOrder

BATCH = 200
Queue = asyncio.Queue[list[Claim] | None]


async def drain(config: PostgresConfig) -> float:
    """Tasks per second through claim, start and complete, three connections side by side."""
    started, finished = Queue(maxsize=4), Queue(maxsize=4)
    begin = perf_counter()
    counts = await asyncio.gather(
        _claim(config, started), _start(config, started, finished), _complete(config, finished)
    )
    return counts[2] / (perf_counter() - begin)


async def _claim(config: PostgresConfig, out: Queue) -> int:
    who = Claimant("bench", timedelta(minutes=1), enrolled=False)
    order = ClaimOrder(["default"], [BATCH], [None], BATCH, BATCH, None, True, [])
    async with await connect(config, name="ceiling claim", options=BY_INDEX) as conn:
        while rows := await tasks.claim(conn, who, order):
            await out.put([Claim(row.id, row.claim_seq) for row in rows])
    await out.put(None)
    return 0


async def _start(config: PostgresConfig, source: Queue, out: Queue) -> int:
    async with await connect(config, name="ceiling start", options=BY_INDEX) as conn:
        while (batch := await source.get()) is not None:
            await tasks.start(conn, "bench", "host", batch, [1] * len(batch), ["child"] * len(batch))
            await out.put(batch)
    await out.put(None)
    return 0


async def _complete(config: PostgresConfig, source: Queue) -> int:
    done = 0
    async with await connect(config, name="ceiling finalize", options=BY_INDEX) as conn:
        while (batch := await source.get()) is not None:
            done += len(await tasks.apply(conn, "bench", [Complete(claim, '{"ok":null}') for claim in batch]))
    return done
