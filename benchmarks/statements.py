"""What each statement of a task's life costs PostgreSQL: processor time of its backend, for each task of a batch."""

from __future__ import annotations

import asyncio

import psutil

from benchmarks.ceiling import RESULT, WORKER, claim_order, claimant
from benchmarks.process import own_seconds
from benchmarks.server import Server
from horsies.core.db.connections import BY_INDEX, IN_BULK, connect
from horsies.core.models.broker import PostgresConfig
from horsies.core.store import tasks
from horsies.core.tasks.moves import Claim, Complete

STAGES = ("claim", "start", "complete")


def measure(server: Server, count: int, batch: int) -> dict[str, float]:
    """Microseconds for each task, by statement: one after the other, each on a connection of its own."""
    server.fill("noop", count)
    server.settle()
    seconds = asyncio.run(_life(PostgresConfig(database_url=server.url), batch))
    server.clear()
    return {stage: spent / count * 1e6 for stage, spent in zip(STAGES, seconds, strict=True)}


async def _life(config: PostgresConfig, batch: int) -> list[float]:
    claims = await connect(config, name="claim", options=BY_INDEX)
    starts = await connect(config, name="start", options=IN_BULK)
    ends = await connect(config, name="complete", options=IN_BULK)
    async with claims, starts, ends:
        backends = [psutil.Process(conn.info.backend_pid) for conn in (claims, starts, ends)]
        before = [own_seconds(backend) for backend in backends]
        while rows := await tasks.claim(claims, claimant(), claim_order(batch)):
            taken = [Claim(row.id, row.claim_seq) for row in rows]
            await tasks.start(starts, WORKER, "host", taken, [1] * len(taken), ["child"] * len(taken))
            await tasks.apply(ends, WORKER, [Complete(claim, RESULT) for claim in taken])
        return [own_seconds(backend) - then for backend, then in zip(backends, before, strict=True)]
