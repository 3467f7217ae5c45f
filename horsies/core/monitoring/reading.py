"""Reads the database for scrapes, with limits: one reading at a time, none while the last one is young, and none that
takes long. So repeated scrapes cost the database nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic

from horsies.core.brokers.answers import answered_within
from horsies.core.brokers.pool import Pool
from horsies.core.brokers.results import AWAY, describe
from horsies.core.monitoring.exposition import Reading
from horsies.core.monitoring.models.snapshots import Snapshot
from horsies.core.monitoring.snapshot import Configured, read_snapshot
from horsies.core.store import monitoring
from horsies.core.store.tasks import Connection

log = logging.getLogger("horsies.metrics")

MAX_AGE_S = 5.0
RETRY_S = 2.0  # after a reading that failed
PATIENCE_S = 5.0


def over(pool: Pool, configured: Configured) -> Callable[[], Awaitable[Snapshot]]:
    """Read over a separate pool."""

    async def look(conn: Connection) -> Snapshot:
        async with conn.transaction():
            await monitoring.settle(conn, timedelta(seconds=PATIENCE_S))
            return await read_snapshot(conn, configured=configured)

    async def read() -> Snapshot:
        async with pool.connection() as conn:
            return await answered_within(PATIENCE_S, conn, look(conn))

    return read


class NoReading(Exception):
    """The database did not answer; the text says why."""


class Reader:
    """`reading()` is the newest reading; `read` queries the database and raises what goes wrong."""

    def __init__(
        self, read: Callable[[], Awaitable[Snapshot]], *, max_age_s: float = MAX_AGE_S, patience_s: float = PATIENCE_S
    ) -> None:
        self._read = read
        self._max_age_s = max_age_s
        self._patience_s = patience_s
        self._snapshot: Snapshot | None = None
        self._problem: str | None = None
        self._read_at = 0.0  # when the last reading ended
        self._took_s = 0.0
        self._errors = 0
        self._asking: asyncio.Task[None] | None = None

    @property
    def problem(self) -> str | None:
        """Why the last reading failed; None if it did not."""
        return self._problem

    async def reading(self) -> Reading:
        """A reading of limited age; while the database does not answer, one without numbers."""
        if self._asking is None and self._is_old():
            self._asking = asyncio.create_task(self._ask(), name="horsies reading")
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=self._patience_s)
            if self._asking is not None:  # it is still under way: what there is, is too old
                return Reading(None, errors=self._errors, took_s=self._patience_s)
        return Reading(self._snapshot, monotonic() - self._read_at, self._took_s, self._errors)

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    def _is_old(self) -> bool:
        age = monotonic() - self._read_at
        return not self._read_at or age >= (RETRY_S if self._snapshot is None else self._max_age_s)

    async def _ask(self) -> None:
        began = monotonic()
        try:
            self._snapshot, problem = await self._read(), None
        except (NoReading, *AWAY) as failed:
            problem = str(failed) if isinstance(failed, NoReading) else describe(failed)
        except Exception as failed:  # a mistake of ours must not end what it is only looking at
            log.exception("the database could not be read")
            problem = type(failed).__name__
        finally:
            self._asking = None
        if problem is not None:
            self._snapshot, self._errors = None, self._errors + 1
            if self._problem is None:
                log.warning("the database cannot be read for metrics: %s", problem)
        self._problem = problem
        self._read_at = monotonic()
        self._took_s = self._read_at - began
