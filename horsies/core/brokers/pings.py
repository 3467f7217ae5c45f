"""Checks whether the database and the workers answer: one statement for the database, a NOTIFY and a time of listening
for the workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from time import perf_counter

from horsies.core.brokers.hub import Hub
from horsies.core.models.broker import DatabasePing, WorkerPong
from horsies.core.sql import load

PONG = "horsies_worker_pong"
LISTEN_SECONDS = 5.0  # for a connection that is there to take one more channel


async def ping_database(hub: Hub) -> DatabasePing:
    """How long an empty statement takes."""
    async with hub.connection() as conn:
        begun = perf_counter()
        await conn.execute("SELECT 1")
        return DatabasePing(latency_ms=(perf_counter() - begun) * 1000)


async def ping_workers(
    hub: Hub, target_worker_id: str | None, timeout_seconds: float, min_responses: int | None
) -> list[WorkerPong]:
    """The workers that answer in time. The wait ends early when the named worker, or `min_responses` workers, have
    answered."""
    enough = 1 if target_worker_id is not None and min_responses is None else min_responses
    nonce = uuid.uuid4().hex
    pongs: dict[str, WorkerPong] = {}
    complete = asyncio.Event()
    begun = perf_counter()  # an answer to an earlier question may come before ours is asked

    def on_pong(payload: str) -> None:
        if (pong := _read(payload, nonce, begun)) is not None:
            pongs.setdefault(pong.worker_id, pong)
            if enough is not None and len(pongs) >= enough:
                complete.set()

    await hub.listen()
    hub.listener.subscribe(PONG, on_pong)
    try:
        async with asyncio.timeout(LISTEN_SECONDS):
            await hub.listener.in_step()
        begun = perf_counter()
        async with hub.connection() as conn:
            await conn.execute(
                load("workers/ping"), {"question": json.dumps({"id": nonce, "target": target_worker_id})}
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await complete.wait()
    finally:
        hub.listener.unsubscribe(PONG, on_pong)
    return sorted(pongs.values(), key=lambda pong: pong.worker_id)


def _read(payload: str, nonce: str, begun: float) -> WorkerPong | None:
    """The reply to our question; other messages on the channel belong to others."""
    try:
        fields = json.loads(payload)
        if fields["id"] != nonce:
            return None
        latency_ms = (perf_counter() - begun) * 1000
        return WorkerPong(str(fields["worker_id"]), str(fields["hostname"]), int(fields["pid"]), latency_ms)
    except (ValueError, TypeError, KeyError):
        return None
