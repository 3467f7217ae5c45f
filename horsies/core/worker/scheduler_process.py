"""`horsies scheduler` as a process: settings, schema, and checks until it is told to stop (S-40, S-42). What is due and
what is sent is decided in `scheduler/`.

`exposed` serves /metrics, /healthz and /readyz beside it, if it has a port; that part only observes.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from time import monotonic

from horsies.core import errors, loop
from horsies.core.app import Horsies
from horsies.core.db import AWAY, BY_INDEX, describe, is_not_permitted, make_pool
from horsies.core.models.app import AppConfig
from horsies.core.monitoring import http, metrics, snapshot
from horsies.core.scheduler import payloads, service
from horsies.core.schema.install import SchemaError
from horsies.core.text import counted
from horsies.core.worker import fence, startup

log = logging.getLogger("horsies.scheduler")

LOCK_TIMEOUT_MS = 2_000
MISSED_CHECKS = 3
LATE_S = 5.0
LINGER_S = 30.0


class SchedulerProcess:
    """The app has been checked and its modules imported. `run` returns the exit code: 0, or 1 if it gave up."""

    def __init__(self, app: Horsies) -> None:
        self._app = app
        self._config = payloads.require_schedule(app.config)
        self._stop = asyncio.Event()
        settings = f"{BY_INDEX} -c lock_timeout={LOCK_TIMEOUT_MS}"
        self._pool = make_pool(app.config.broker, name="horsies scheduler", options=settings)
        self.scheduler = service.Scheduler(self._config, self._pool, payloads.LocalPreparer(app))
        self._serving: asyncio.Task[None] | None = None

    def request_stop(self) -> None:
        """Finish the current check, then end; a second call ends at once."""
        if self._stop.is_set() and self._serving is not None:
            self._serving.cancel()
        self._stop.set()

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    async def run(self, *, install_signals: bool = False) -> int:
        if install_signals:
            for sig in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(sig, self.request_stop)
        self._serving = asyncio.create_task(self._serve())
        try:
            await self._serving
        except asyncio.CancelledError:
            if not self._stop.is_set():
                raise
        except (loop.DatabaseGone, errors.HorsiesError) as problem:
            log.error("the scheduler stops: %s", problem)
            return 1
        finally:
            self.scheduler.close()
            await self._pool.close()
        log.info("scheduler stopped")
        return 0

    async def _serve(self) -> None:
        resilience = self._app.config.resilience
        await startup.Persistence(resilience, self._stop, fence.Pulse(0.0))("schema", self._install_schema)
        if self._stop.is_set():
            return
        count = counted(len(self._config.schedules), "schedule")
        log.info("scheduler ready: %s in the code, a check every %g s", count, self.scheduler.interval_s)
        patience = loop.Patience("scheduler", resilience)
        while not self._stop.is_set():
            try:
                pause = await self.scheduler.step()
            except AWAY as problem:
                if is_not_permitted(problem) and self.scheduler.last_check is None:
                    raise SchemaError(describe(problem)) from problem
                pause = patience.failed(problem)
            else:
                patience.succeeded()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)

    async def _install_schema(self) -> None:
        await startup.install_schema(self._app.config.broker)


@asynccontextmanager
async def exposed(process: SchedulerProcess, config: AppConfig, host: str, port: int | None) -> AsyncIterator[None]:
    """Serve while the scheduler runs, until it has ended."""
    if port is None:
        yield
        return
    pool = make_pool(config.broker, min_size=0, max_size=1, linger=LINGER_S, name="horsies metrics")
    reader = snapshot.Reader(snapshot.over(pool, snapshot.configured_by(config)))

    def age_s() -> float | None:
        last = process.scheduler.last_check
        return None if last is None else monotonic() - last

    async def reasons() -> dict[str, str]:
        interval_s = process.scheduler.interval_s
        return problems(is_stopping=process.is_stopping, check_age_s=age_s(), interval_s=interval_s)

    async def own() -> Iterator[metrics.Family]:
        return metrics.of_scheduler(age_s(), is_ready=not await reasons())

    endpoints = http.Endpoints(host, port, reader, reasons, own)
    await endpoints.open()
    log.info("metrics and health: %s/metrics, /healthz, /readyz", endpoints.url)
    try:
        yield
    finally:
        await endpoints.close()
        await reader.close()
        await pool.close()


def problems(*, is_stopping: bool, check_age_s: float | None, interval_s: float) -> dict[str, str]:
    """Why a scheduler is not ready: its checks do not succeed. Each check queries the database."""
    if is_stopping:
        return {"stopping": "the scheduler sends no more tasks"}
    if check_age_s is None:
        return {"starting": "no check has succeeded yet"}
    if check_age_s > MISSED_CHECKS * interval_s + LATE_S:
        return {"checking": f"no check has succeeded for {check_age_s:.0f} s"}
    return {}
