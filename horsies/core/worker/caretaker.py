"""What a worker does for tasks that are not its own: the recovery services and their intervals.

Nothing here knows the worker's own tasks, children or claims. Short work shares one pool; a sweep keeps its connection
while hooks are called, so it has its own.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from horsies.core.brokers.pool import PoolTimeout
from horsies.core.brokers.results import AWAY
from horsies.core.recovery.asking import Asker
from horsies.core.recovery.connections import Connections
from horsies.core.recovery.ended import OnEnded, nobody
from horsies.core.recovery.evidence import LOOK_EVERY_S, Evidence
from horsies.core.recovery.reaper import Reaper
from horsies.core.recovery.retention import Retention
from horsies.core.recovery.sweep import Sweeper
from horsies.core.worker.fence import Pulse
from horsies.core.worker.identity import Identity
from horsies.core.worker.loop import every
from horsies.core.worker.plan import Plan
from horsies.core.workflows.advance import BuildLater

log = logging.getLogger("horsies.recovery")

EXPIRY_S = 1.0

Step: TypeAlias = Callable[[], Awaitable[None]]


class Caretaker:
    """`steps` are the services, which the worker runs like its own. `on_ended` gets tasks of workflows that were ended,
    `build_later` gets nodes whose child workflow has not been built."""

    def __init__(
        self,
        pool: Connections,
        patient: Connections,
        plan: Plan,
        me: Identity,
        asker: Asker,
        pulse: Pulse,
        *,
        on_ended: OnEnded = nobody,
        build_later: BuildLater | None = None,
    ) -> None:
        self._recovery, self._sweeping = plan.app.config.recovery, plan.recovery
        settings = (self._recovery, self._sweeping)
        self._evidence = Evidence(pool, patient, me, *settings, asker, pulse, on_ended=on_ended)
        self._reaper = Reaper(
            pool, *settings, asker, me.worker_id, pulse, patient=patient, on_ended=on_ended, build_later=build_later
        )
        self._sweeper = Sweeper(patient, self._sweeping, self._recovery, asker, me.worker_id, pulse, on_ended=on_ended)
        self._retention = Retention(pool, *settings)

    def steps(self) -> list[tuple[str, Step]]:
        """The services by name."""
        check_s = self._recovery.check_interval_ms / 1000
        tick: Step = self._reaper.tick
        sweep: Step = self._sweeper.step
        found: list[tuple[str, Step]] = []
        if self._recovery.use_liveness_evidence:
            found.append(("evidence", every(LOOK_EVERY_S, self._evidence.look, at_once=True)))
            tick, sweep = self._evidence.first(tick), self._evidence.first(sweep)
        found += [
            ("reaper", every(check_s, tick, at_once=True)),
            # More often than the rest of the tick: overdue tasks at the head of a queue are in every claim's way.
            ("expiry", every(EXPIRY_S, self._reaper.expire)),
            ("deadlines of workflows", every(EXPIRY_S, self._reaper.expire_workflows)),
            ("retention", every(check_s, self._retention.step)),
        ]
        if self._sweeping.enabled:
            found.append(("sweeper", every(self._sweeping.sweep_interval.total_seconds(), sweep)))
        return [(name, harmless(name, step)) for name, step in found]


def harmless(name: str, step: Step) -> Step:
    """The same step, except that a bug in it does not stop the worker's own tasks. Failures of the database are passed
    on."""

    async def guarded() -> None:
        try:
            await step()
        except PoolTimeout as problem:
            # Mostly a sweep keeps it while it asks slow hooks. The worker must not take that for an outage (W-60).
            log.warning("%s had no connection and will be retried: %s", name, problem)
        except AWAY:
            raise
        except Exception:
            log.exception("%s failed", name)

    return guarded
