"""Thousands of new tasks in one transaction, part by part, by COPY.

Whoever sends them encodes the next part while the server writes the last one: a `Stream` takes the parts from the
caller, in whichever thread, to the loop of the bridge. Nothing is committed before `end`, so a call that turns out to
be wrong, or a caller that gives up, leaves nothing behind. COPY knows nothing of rows that are there already, and some
servers refuse it: what it does not write is written, or refused with its reason, by the ordinary statement
(`enqueue.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from psycopg import errors

from horsies.core.db import is_about_content
from horsies.core.producer.enqueue import MAX_ROWS
from horsies.core.store import sends
from horsies.core.store.sends import Drafts

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

PART = 2_000  # rows in one statement


class Stream:
    """Tasks that were sent at one moment, on their way to the database."""

    def __init__(self, broker: PostgresBroker, sent_at: datetime) -> None:
        self._broker = broker
        self._sent_at = sent_at
        self._parts: deque[Drafts | None] = deque()  # None is behind the last one
        self._loop: asyncio.AbstractEventLoop | None = None
        self._more = asyncio.Event()
        self._writing = broker.bridge.begin(self._write)

    def put(self, part: Drafts | None) -> None:
        """Write this part next."""
        self._parts.append(part)
        if self._loop is not None:  # otherwise the writer has not begun, and looks before it waits
            with suppress(RuntimeError):  # the loop has ended, which is what `end` will say
                self._loop.call_soon_threadsafe(self._more.set)

    async def end(self) -> None:
        """Commit; raise what has gone wrong, now or before."""
        self.put(None)
        await self._writing.result()

    def drop(self) -> None:
        """Write none of them, unless they are committed."""
        self._writing.cancel()

    async def _write(self) -> None:
        """Write all parts as they come, on the bridge."""
        self._loop = asyncio.get_running_loop()
        async with self._broker.hub.connection() as conn, conn.transaction():
            due = await sends.due_at(conn, max(0.0, (datetime.now(UTC) - self._sent_at).total_seconds()))
            while (part := await self._next()) is not None:
                await sends.copy(conn, part, due)

    async def _next(self) -> Drafts | None:
        while not self._parts:
            self._more.clear()
            if not self._parts:
                await self._more.wait()
        return self._parts.popleft()


async def copied(broker: PostgresBroker, batch: Drafts, stream: Stream | None) -> bool:
    """Write the batch, which may be under way in a stream. False if the ordinary statement must try it."""
    if stream is None:
        stream = Stream(broker, batch.drafts[0][0]["sent_at"])
        for start in range(0, len(batch), PART):
            stream.put(batch.part(start, start + PART))
    try:
        await stream.end()
    except Exception as problem:
        if is_about_content(problem) or isinstance(problem, errors.FeatureNotSupported | errors.QueryCanceled):
            return False
        raise
    return True


def is_fit(batch: Drafts) -> bool:
    """Whether a copy is possible, and pays for its additional round trips."""
    return len(batch) > MAX_ROWS and not batch.has_keys
