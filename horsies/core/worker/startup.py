"""What a worker does once before it serves, however long it must wait for the database (W-03, W-61)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from horsies.core.brokers.connections import connect
from horsies.core.brokers.results import AWAY, describe, hint_for
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.resilience import WorkerResilienceConfig
from horsies.core.schema.install import install
from horsies.core.worker.fence import Pulse
from horsies.core.worker.loop import Patience

log = logging.getLogger("horsies.worker")


async def install_schema(postgres: PostgresConfig) -> str:
    """Create or upgrade the tables; return the notify mode that is recorded in the end (D-60)."""
    conn = await connect(postgres, session=True, name="horsies schema")
    try:
        report = await install(conn, notify=postgres.notify, change_notify=True)
    finally:
        await conn.close()
    if report.notify_changed_from is not None:
        log.warning("notify mode of the database changed from %s to %s", report.notify_changed_from, report.notify)
    return report.notify


class Persistence:
    """Tries until it succeeds or the worker is told to stop. A worker that had to wait for its database counts as
    having lost it (R-23), because the other workers must come back as well."""

    def __init__(self, config: WorkerResilienceConfig, stop: asyncio.Event, pulse: Pulse) -> None:
        self._config = config
        self._stop = stop
        self._pulse = pulse

    async def __call__(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        patience = Patience(name, self._config)
        hint: str | None = None
        while not self._stop.is_set():
            try:
                await step()
                return
            except AWAY as problem:
                self._pulse.failed()
                pause = patience.failed(problem)
                if hint is None and (hint := hint_for(describe(problem))) is not None:
                    log.warning("the worker is waiting for its database: %s", hint)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), pause)
