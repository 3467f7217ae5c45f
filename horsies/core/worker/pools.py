"""The worker's connections, divided so that nothing can block the claims.

Batches use sessions that plan for many rows. Recovery has its own connection; so do workflows, and so does a sweep,
which keeps its connection while hooks are called. If fewer connections are allowed, they share.
"""

from __future__ import annotations

from typing import NamedTuple

from horsies.core.brokers.connections import BY_INDEX, IN_BULK, make_pool
from horsies.core.brokers.pool import Pool
from horsies.core.worker.plan import Plan

BULK_STAGES = 2
LOCK_TIMEOUT_MS = 2_000  # a row that somebody keeps locked holds up its own task only
LINGER_S = 5.0


class Shares(NamedTuple):
    """How many connections each may have; 0 means that it shares with another."""

    database: int
    bulk: int
    care: int
    patient: int
    flows: int


def share_out(keep: int, most: int) -> Shares:
    """Divide `most` connections in all, of which `keep` stay open."""
    bulk = BULK_STAGES if keep > BULK_STAGES else min(1, most - 1)
    care = int(most - bulk > 1)
    patient = int(most - bulk > 2)
    flows = int(most - bulk > 3)
    return Shares(most - bulk - care - patient - flows, bulk, care, patient, flows)


class Pools:
    """`database` for claims and single rows, `bulk` for batches, `care` for recovery, `patient` for sweeps, `flows` for
    advancing workflows."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        shares = share_out(plan.pool_size, plan.pool_size + plan.pool_overflow)
        self.database = self._open(BY_INDEX, max(1, plan.pool_size - shares.bulk), shares.database)
        self.bulk = self._open(IN_BULK, shares.bulk, shares.bulk) if shares.bulk else self.database
        self.care = self._open(BY_INDEX, 0, shares.care) if shares.care else self.database
        self.patient = self._open(BY_INDEX, 0, shares.patient) if shares.patient else self.care
        # A sweep is rare and mostly short; the reaper's passes are neither.
        self.flows = self._open(BY_INDEX, 0, shares.flows) if shares.flows else self.patient

    async def close(self) -> None:
        for pool in {
            id(pool): pool for pool in (self.flows, self.patient, self.care, self.bulk, self.database)
        }.values():
            await pool.close()

    def _open(self, options: str, keep: int, most: int) -> Pool:
        settings = f"{options} -c lock_timeout={LOCK_TIMEOUT_MS}"
        return make_pool(
            self._plan.postgres, min_size=keep, max_size=most, linger=LINGER_S, name="horsies worker", options=settings
        )
