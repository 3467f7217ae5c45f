"""What each statement of a task's life costs PostgreSQL: processor time of its backend, for each task of a batch."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from itertools import cycle

import psutil

from benchmarks.ceiling import RESULT, WORKER, claim_order, claimant, seats
from benchmarks.process import own_seconds
from benchmarks.server import Server
from horsies.core.db.connections import BY_INDEX, IN_BULK, connect
from horsies.core.models.broker import PostgresConfig
from horsies.core.store import tasks
from horsies.core.tasks.moves import Claim, Complete

STAGES = ("claim_and_start", "claim", "start", "complete")


def measure(server: Server, count: int, batch: int) -> dict[str, float]:
    """Microseconds for each task, by statement: one after the other, each on a connection of its own. Batches that are
    claimed and started by one statement take turns with those that are not."""
    server.fill("noop", count)
    server.settle()
    found = asyncio.run(_life(PostgresConfig(database_url=server.url), batch))
    server.clear()
    return found


async def _life(config: PostgresConfig, batch: int) -> dict[str, float]:
    options = dict.fromkeys(STAGES, IN_BULK) | {"claim": BY_INDEX, "claim_and_start": BY_INDEX}
    async with AsyncExitStack() as stack:
        opened = {name: await connect(config, name=name, options=options[name]) for name in STAGES}
        conns = {name: await stack.enter_async_context(conn) for name, conn in opened.items()}
        backends = {name: psutil.Process(conn.info.backend_pid) for name, conn in conns.items()}
        before = {name: own_seconds(backend) for name, backend in backends.items()}
        counts: Counter[str] = Counter()
        for stages in cycle((("claim_and_start",), ("claim", "start"))):
            given = seats(batch) if len(stages) == 1 else None
            rows = await tasks.claim(conns[stages[0]], claimant(), claim_order(batch), seats=given)
            if not rows:
                break
            taken = [Claim(row.id, row.claim_seq) for row in rows]
            if len(stages) == 2:
                await tasks.start(conns["start"], WORKER, "host", taken, [1] * len(taken), ["child"] * len(taken))
            await tasks.apply(conns["complete"], WORKER, [Complete(claim, RESULT) for claim in taken])
            counts.update(dict.fromkeys((*stages, "complete"), len(taken)))
        spent = {name: own_seconds(backend) - before[name] for name, backend in backends.items()}
        return {name: spent[name] / max(1, counts[name]) * 1e6 for name in STAGES}
