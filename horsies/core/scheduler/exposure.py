"""What a scheduler exposes: /metrics, /healthz and /readyz, if it has a port. It only observes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from time import monotonic

from horsies.core.brokers.connections import make_pool
from horsies.core.models.app import AppConfig
from horsies.core.monitoring.endpoints import Endpoints
from horsies.core.monitoring.exposition import Family, of_scheduler
from horsies.core.monitoring.reading import Reader, over
from horsies.core.monitoring.snapshot import configured_by
from horsies.core.scheduler.process import SchedulerProcess

log = logging.getLogger("horsies.scheduler")

MISSED_CHECKS = 3
LATE_S = 5.0
LINGER_S = 30.0


def problems(*, is_stopping: bool, check_age_s: float | None, interval_s: float) -> dict[str, str]:
    """Why a scheduler is not ready: its checks do not succeed. Each check queries the database."""
    if is_stopping:
        return {"stopping": "the scheduler sends no more tasks"}
    if check_age_s is None:
        return {"starting": "no check has succeeded yet"}
    if check_age_s > MISSED_CHECKS * interval_s + LATE_S:
        return {"checking": f"no check has succeeded for {check_age_s:.0f} s"}
    return {}


@asynccontextmanager
async def exposed(process: SchedulerProcess, config: AppConfig, host: str, port: int | None) -> AsyncIterator[None]:
    """Serve while the scheduler runs, until it has ended."""
    if port is None:
        yield
        return
    pool = make_pool(config.broker, min_size=0, max_size=1, linger=LINGER_S, name="horsies metrics")
    reader = Reader(over(pool, configured_by(config)))

    def age_s() -> float | None:
        last = process.scheduler.last_check
        return None if last is None else monotonic() - last

    async def reasons() -> dict[str, str]:
        interval_s = process.scheduler.interval_s
        return problems(is_stopping=process.is_stopping, check_age_s=age_s(), interval_s=interval_s)

    async def own() -> Iterator[Family]:
        return of_scheduler(age_s(), is_ready=not await reasons())

    endpoints = Endpoints(host, port, reader, reasons, own)
    await endpoints.open()
    log.info("metrics and health: %s/metrics, /healthz, /readyz", endpoints.url)
    try:
        yield
    finally:
        await endpoints.close()
        await reader.close()
        await pool.close()
