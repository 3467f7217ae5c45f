"""Sends that wait at the same moment share one INSERT and one commit: whatever has piled up goes together.

One send alone is written at once. While it is being committed the next ones gather, from all threads and loops of the
process, and follow as one statement; so a busy producer is bound by its own work and not by commits. Lives on the loop
of the bridge.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from psycopg import AsyncConnection

from horsies.core.brokers.results import is_about_content
from horsies.core.producer.enqueue import Verdict, enqueue
from horsies.core.store.sends import Send

LANES = 2  # statements under way at once: one gathers its commit while the next is on its way
MAX_BATCH = 500
MAX_BATCH_CHARS = 4 << 20

Waiting: TypeAlias = tuple[Send, asyncio.Future[Verdict]]


class Writer:
    """`write` one send; what is wrong with it is raised to its sender alone."""

    def __init__(self, connection: Callable[[], AbstractAsyncContextManager[AsyncConnection[Any]]]) -> None:
        self._connection = connection
        self._waiting: deque[Waiting] = deque()
        self._lanes: set[asyncio.Task[None]] = set()

    async def write(self, send: Send) -> Verdict:
        answer: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._waiting.append((send, answer))
        if len(self._lanes) < LANES:
            lane = asyncio.create_task(self._run())
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)
        return await answer

    async def close(self) -> None:
        """End what is under way; its senders hear that it was not confirmed."""
        for lane in self._lanes:
            lane.cancel()
        await asyncio.gather(*self._lanes, return_exceptions=True)

    async def _run(self) -> None:
        while self._waiting:
            await self._write(self._next_batch())

    def _next_batch(self) -> list[Waiting]:
        batch: list[Waiting] = []
        ids: set[str] = set()
        size = 0
        while self._waiting and len(batch) < MAX_BATCH and size < MAX_BATCH_CHARS:
            send, answer = self._waiting[0]
            if send.task_id in ids:
                break  # the same id again: it must see what became of the first
            self._waiting.popleft()
            ids.add(send.task_id)
            size += len(send.payload.args_json or "") + len(send.payload.kwargs_json or "")
            batch.append((send, answer))
        return batch

    async def _write(self, batch: list[Waiting]) -> None:
        try:
            async with self._connection() as conn:
                verdicts = await enqueue(conn, [send for send, _ in batch])
        except Exception as problem:
            if len(batch) > 1 and is_about_content(problem):
                for one in batch:  # one of them is at fault; the others must not suffer for it
                    await self._write([one])
                return
            _settle(batch, problem)
        except asyncio.CancelledError:
            _settle(batch, ConnectionError("the broker was closed before the send was confirmed"))
            raise
        else:
            for (_, answer), verdict in zip(batch, verdicts, strict=True):
                if not answer.done():
                    answer.set_result(verdict)


def _settle(batch: list[Waiting], problem: Exception) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(problem)
