"""What a worker exposes while it runs: /metrics, /healthz and /readyz on its own port, if it has one, and spans of
tasks with a trace.

Everything here only observes: it has its own connections and is closed last. Without a port and without OpenTelemetry,
it does nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from time import monotonic

import psutil

from horsies.core import events, tracing
from horsies.core.brokers.cancelling import cancel_all
from horsies.core.brokers.connections import make_pool
from horsies.core.brokers.listener import Listener
from horsies.core.monitoring.endpoints import Endpoints
from horsies.core.monitoring.exposition import Family, WorkerFacts, of_worker
from horsies.core.monitoring.reading import Reader, over
from horsies.core.monitoring.snapshot import configured_by
from horsies.core.worker.claimer import Claimer
from horsies.core.worker.fence import Pulse
from horsies.core.worker.hand import Hand, Phase
from horsies.core.worker.health import Health
from horsies.core.worker.identity import Identity
from horsies.core.worker.meter import Meter
from horsies.core.worker.plan import Plan
from horsies.core.worker.pool import Pool
from horsies.core.worker.tally import Tally

log = logging.getLogger("horsies.worker")

TICK_S = 0.5
LINGER_S = 30.0  # a connection is kept from one scrape to the next
_PHASES = {
    Phase.CLAIMED: "claimed",
    Phase.STARTING: "claimed",
    Phase.LINED: "started",
    Phase.FED: "started",
    Phase.STARTED: "started",
    Phase.SETTLING: "settling",
}


class Exposure:
    """It is opened before the worker starts anything, and closed after everything else."""

    def __init__(
        self,
        plan: Plan,
        me: Identity,
        claimer: Claimer,
        children: Pool,
        listener: Listener,
        pulse: Pulse,
        hand: Hand,
        tally: Tally,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._me = me
        self._children = children
        self._listener = listener
        self._hand = hand
        self._tally = tally
        self._meter = Meter()
        self._pool = make_pool(plan.postgres, min_size=0, max_size=2, linger=LINGER_S, name="horsies metrics")
        self._health = Health(
            self._pool, claimer, children, listener, pulse, processes=plan.config.processes, poll_s=plan.poll_s,
            is_stopping=is_stopping, on_clock=self._set_clock, redact=plan.postgres.redact,
        )  # fmt: skip
        self._reader = Reader(over(self._pool, configured_by(plan.app.config)))
        self._endpoints: Endpoints | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._lag_s = 0.0
        self._process = psutil.Process(me.pid)
        self._version = version("horsies") if plan.config.metrics_port is not None else ""
        self._unsubscribe: list[Callable[[], None]] = []

    async def open(self) -> None:
        """Start to observe, and to answer if a port is given."""
        if (spans := tracing.supervisor(self._me.worker_id)) is not None:
            self._unsubscribe.append(events.subscribe(spans))
        config = self._plan.config
        if config.metrics_port is None:
            return
        endpoints = Endpoints(config.metrics_host, config.metrics_port, self._reader, self._health.problems, self._own)
        await endpoints.open()
        self._endpoints = endpoints
        self._unsubscribe.append(events.subscribe(self._meter))
        self._listener.on_lost(self._note_loss)
        self._ticking = asyncio.create_task(self._tick(), name="horsies loop lag")
        log.info("metrics and health: %s/metrics, /healthz, /readyz", endpoints.url)

    def serves(self) -> None:
        """The worker has started."""
        self._health.is_started = True

    async def close(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        if self._ticking is not None:
            await cancel_all([self._ticking])
        if self._endpoints is not None:
            await self._endpoints.close()
        await self._reader.close()
        await self._pool.close()

    async def _own(self) -> Iterator[Family]:
        """The worker's own numbers, which cost nothing to read."""
        is_ready = not await self._health.problems()
        facts = WorkerFacts(
            worker_id=self._me.worker_id,
            hostname=self._me.hostname,
            version=self._version,
            is_ready=is_ready,
            slots=self._plan.config.processes * self._plan.config.concurrency,
            in_hand=self._in_hand(),
            children=self._child_states(),
            supervisor_bytes=self._process.memory_info().rss,
            children_bytes=sum(child.rss_mb for child in self._children.children) * 2**20,
            is_listening=self._listener.connected,
            notifications=self._listener.heard,
            loop_lag_s=self._lag_s,
            aborts=self._tally.aborts,
        )
        self._lag_s = 0.0
        return of_worker(facts, self._meter.counts)

    def _in_hand(self) -> dict[str, int]:
        found = dict.fromkeys(_PHASES.values(), 0)
        for held in self._hand:
            found[_PHASES[held.phase]] += 1
        return found

    def _child_states(self) -> Mapping[str, int]:
        found = {"ready": 0, "starting": 0, "retiring": 0}
        for child in self._children.children:
            found["retiring" if child.is_retiring else "ready" if child.is_ready else "starting"] += 1
        return found

    def _set_clock(self, ahead_s: float) -> None:
        self._meter.ahead_s = ahead_s

    def _note_loss(self) -> None:
        self._meter.counts.listener_losses += 1

    async def _tick(self) -> None:
        """Measure how late the loop is."""
        while True:
            due = monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            self._lag_s = max(self._lag_s, monotonic() - due)
