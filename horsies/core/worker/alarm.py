"""Wakes the claimer when a retry becomes due, so that it does not wait for the next poll (T-80)."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from time import monotonic

from horsies.core.brokers.pool import Pool
from horsies.core.store import tasks

MOST = 10_000  # further ones are left to the poll


class Alarm:
    """`set` adds a time; `step` waits for the next one and wakes the claimer."""

    def __init__(self, pool: Pool, on_ring: Callable[[], None]) -> None:
        self._pool = pool
        self._on_ring = on_ring
        self._due: list[tuple[float, str, str]] = []
        self._event = asyncio.Event()

    def set(self, delay_s: float, queue: str, task_id: str) -> None:
        if len(self._due) < MOST:
            heapq.heappush(self._due, (monotonic() + delay_s, queue, task_id))
            self._event.set()

    async def step(self) -> None:
        self._event.clear()
        pause = self._due[0][0] - monotonic() if self._due else None
        if pause is None or pause > 0:
            try:
                async with asyncio.timeout(pause):
                    await self._event.wait()
            except TimeoutError:
                pass
            return
        ripe: list[tuple[str, str]] = []
        while self._due and self._due[0][0] <= monotonic():
            _, queue, task_id = heapq.heappop(self._due)
            ripe.append((queue, task_id))
        self._on_ring()
        async with self._pool.connection() as conn:
            await tasks.ring(conn, ripe)
