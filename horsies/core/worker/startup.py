"""What a worker needs before it serves: its connections, and the tables, however long it must wait for the database
(W-03, W-61).

`ConnectionPools` divides the connections so that nothing can block the claims. One stays open; the others are closed
when nothing has needed them for some seconds. Batches use sessions that plan for many rows. Recovery has its own
connection; so do workflows, and so does a sweep, which keeps its connection while hooks are called. If fewer
connections are allowed, they share. The order of the start is in `service.py`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from horsies.core.db import (
    AWAY,
    BY_INDEX,
    IN_BULK,
    Connection,
    Pool,
    connect,
    describe,
    hint_for,
    is_not_permitted,
    make_pool,
    without_session,
)
from horsies.core.loop import Patience
from horsies.core.models import broker, recovery
from horsies.core.schema.install import SchemaError, install
from horsies.core.worker.config import Plan
from horsies.core.worker.fence import Pulse

log = logging.getLogger("horsies.worker")

BULK_STAGES = 2
LOCK_TIMEOUT_MS = 2_000  # a row that somebody keeps locked holds up only its own task
LINGER_S = 5.0
CARE_LINGER_S = 1.0  # the ticks of the reaper are rare, and their connection is not kept for the next


class ConnectionShares(NamedTuple):
    """How many connections each may have; 0 means that it shares with another."""

    database: int
    bulk: int
    care: int
    patient: int
    flows: int


def share_connections(keep: int, most: int) -> ConnectionShares:
    """Divide `most` connections in all, of which `keep` stay open."""
    bulk = BULK_STAGES if keep > BULK_STAGES else min(1, most - 1)
    care = int(most - bulk > 1)
    patient = int(most - bulk > 2)
    flows = int(most - bulk > 3)
    return ConnectionShares(most - bulk - care - patient - flows, bulk, care, patient, flows)


class ConnectionPools:
    """`database` for claims and single rows, `bulk` for batches, `care` for recovery, `patient` for sweeps, `flows` for
    advancing workflows."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        shares = share_connections(plan.pool_size, plan.pool_size + plan.pool_overflow)
        self.database = self._open(BY_INDEX, 1, shares.database)
        self.bulk = self._open(IN_BULK, 0, shares.bulk) if shares.bulk else self.database
        self.care = self._open(BY_INDEX, 0, shares.care, CARE_LINGER_S) if shares.care else self.database
        self.patient = self._open(BY_INDEX, 0, shares.patient) if shares.patient else self.care
        # A sweep is rare and mostly short; the reaper's passes are neither.
        self.flows = self._open(BY_INDEX, 0, shares.flows) if shares.flows else self.patient

    async def close(self) -> None:
        for pool in {
            id(pool): pool for pool in (self.flows, self.patient, self.care, self.bulk, self.database)
        }.values():
            await pool.close()

    def _open(self, options: str, keep: int, most: int, linger_s: float = LINGER_S) -> Pool:
        settings = f"{options} -c lock_timeout={LOCK_TIMEOUT_MS}"
        return make_pool(
            self._plan.postgres, min_size=keep, max_size=most, linger=linger_s, name="horsies worker", options=settings
        )


class LooksChoice:
    """The connection for looks: short statements that a worker makes now and then, and that change nothing, or only its
    own row. While the worker is idle, it is the one for claims, so that an idle worker needs no other; while it has
    tasks, nothing holds up the claims."""

    def __init__(self, is_idle: Callable[[], bool], claims: Pool, care: Pool) -> None:
        self._is_idle = is_idle
        self._claims = claims
        self._care = care

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        return (self._claims if self._is_idle() and self._claims.has_idle else self._care).connection()


async def install_schema(
    postgres: broker.PostgresConfig,
    before_change: Callable[[], Awaitable[None]] | None = None,
) -> str:
    """Create or upgrade the tables, after `before_change` has returned, or find them as they should be. Return the
    notify mode that is recorded in the end (D-60)."""
    conn = await connect(postgres, session=True, name="horsies schema")
    try:
        report = await install(conn, notify=postgres.notify, change_notify=True, before_change=before_change)
    finally:
        await conn.close()
    if report.notify_changed_from is not None:
        log.warning("notify mode of the database changed from %s to %s", report.notify_changed_from, report.notify)
    return report.notify


def warn_without_session(plan: Plan) -> None:
    """Say once what is slower behind a transaction pooler without a session URL (O-01)."""
    if not plan.postgres.has_sessions:
        headline, slower = without_session(plan.poll_s)
        log.warning("%s: %s", headline, "; ".join(slower))


class Persistence:
    """Tries until it succeeds or the worker is told to stop; a missing right ends it (O-20). A worker that had to wait
    for its database counts as having lost it (R-23), because the other workers must come back as well."""

    def __init__(self, config: recovery.WorkerResilienceConfig, stop: asyncio.Event, pulse: Pulse) -> None:
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
                if is_not_permitted(problem):  # only somebody else can change that
                    raise SchemaError(describe(problem)) from problem
                self._pulse.failed()
                pause = patience.failed(problem)
                if hint is None and (hint := hint_for(describe(problem))) is not None:
                    log.warning("the worker is waiting for its database: %s", hint)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), pause)
