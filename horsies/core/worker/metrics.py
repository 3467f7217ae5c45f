"""What a worker with a port of its own publishes about itself. It only observes, so nothing here changes what the
worker does.

`Exposure` serves /metrics, /healthz and /readyz. It has its own connections and is closed last. `WorkerMetrics` counts
what the worker does, from the events of its pipeline, once for each batch. Whether the worker is ready is decided in
`health.py`; the text of /metrics is made in `monitoring/`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import psutil

from horsies.core import distribution, events
from horsies.core.db import Listener, cancel_all, make_pool
from horsies.core.monitoring import http, metrics
from horsies.core.monitoring.snapshot import Reader, configured_by, over
from horsies.core.tasks.moves import Complete, Expire, Fail, Move, Requeue, Retry
from horsies.core.types import TaskAttemptOutcome
from horsies.core.worker import claim, fence, finalize, health
from horsies.core.worker.children import Children
from horsies.core.worker.config import Identity, Plan
from horsies.core.worker.in_hand import HeldTask, InHand, Phase

log = logging.getLogger("horsies.worker")

TICK_S = 0.5
LINGER_S = 30.0  # a connection is kept from one scrape to the next
HANDED_BACK, LOST = "handed_back", "lost"

_OUTCOMES: dict[type, str] = {Complete: "completed", Fail: "failed", Retry: "retried", Expire: "expired"}
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
        *,
        claimer: claim.Claimer,
        children: Children,
        listener: Listener,
        pulse: fence.Pulse,
        in_hand: InHand,
        outcomes: finalize.OutcomeLog,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._me = me
        self._children = children
        self._listener = listener
        self._in_hand = in_hand
        self._outcomes = outcomes
        self._metrics = WorkerMetrics()
        self._pool = make_pool(plan.postgres, min_size=0, max_size=2, linger=LINGER_S, name="horsies metrics")
        self._health = health.Health(
            self._pool,
            claimer=claimer,
            children=children,
            listener=listener,
            pulse=pulse,
            processes=plan.processes,
            poll_s=plan.poll_s,
            is_stopping=is_stopping,
            on_clock=self._set_clock,
            redact=plan.postgres.redact,
        )
        self._reader = Reader(over(self._pool, configured_by(plan.app.config)))
        self._endpoints: http.Endpoints | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._lag_s = 0.0
        self._process = psutil.Process(me.pid)
        self._version = distribution.version()
        self._unsubscribe: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Start to observe and to answer."""
        config = self._plan.config
        assert config.metrics_port is not None
        endpoints = http.Endpoints(
            config.metrics_host, config.metrics_port, self._reader, self._health.problems, self._own
        )
        await endpoints.open()
        self._endpoints = endpoints
        self._unsubscribe = events.subscribe(self._metrics)
        self._listener.on_lost(self._note_loss)
        self._ticking = asyncio.create_task(self._tick(), name="horsies loop lag")
        log.info("metrics and health: %s/metrics, /healthz, /readyz", endpoints.url)

    def serves(self) -> None:
        """The worker has started."""
        self._health.is_started = True

    async def close(self) -> None:
        self._unsubscribe()
        if self._ticking is not None:
            await cancel_all([self._ticking])
        if self._endpoints is not None:
            await self._endpoints.close()
        await self._reader.close()
        await self._pool.close()

    async def _own(self) -> Iterator[metrics.Family]:
        """The worker's own numbers, which cost nothing to read."""
        is_ready = not await self._health.problems()
        facts = metrics.WorkerFacts(
            worker_id=self._me.worker_id,
            hostname=self._me.hostname,
            version=self._version,
            is_ready=is_ready,
            slots=self._plan.slots,
            in_hand=self._by_phase(),
            children=self._child_states(),
            supervisor_bytes=self._process.memory_info().rss,
            children_bytes=sum(child.rss_mb for child in self._children.children) * 2**20,
            is_listening=None if self._listener.is_off else self._listener.connected,
            notifications=self._listener.heard,
            loop_lag_s=self._lag_s,
            aborts=self._outcomes.aborts,
        )
        self._lag_s = 0.0
        return metrics.of_worker(facts, self._metrics.counts)

    def _by_phase(self) -> dict[str, int]:
        found = dict.fromkeys(_PHASES.values(), 0)
        for held in self._in_hand:
            found[_PHASES[held.phase]] += 1
        return found

    def _child_states(self) -> Mapping[str, int]:
        found = {"ready": 0, "starting": 0, "retiring": 0}
        for child in self._children.children:
            found["retiring" if child.is_retiring else "ready" if child.is_ready else "starting"] += 1
        return found

    def _set_clock(self, ahead_s: float) -> None:
        self._metrics.ahead_s = ahead_s

    def _note_loss(self) -> None:
        self._metrics.counts.listener_losses += 1

    async def _tick(self) -> None:
        """Measure how late the loop is."""
        while True:
            due = monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            self._lag_s = max(self._lag_s, monotonic() - due)


class WorkerMetrics:
    """A listener for `events.subscribe`; `counts` has the totals."""

    def __init__(self) -> None:
        self.counts = metrics.WorkerCounts()
        self.ahead_s = 0.0  # how far the database's clock, which says when a task was due, is ahead of ours

    def __call__(self, event: str, facts: Mapping[str, Any]) -> None:
        counts = self.counts
        match event:
            case "tasks.claimed":
                counts.claim.note(len(facts["rows"]), facts["seconds"])
            case "tasks.started":
                counts.start.note(len(facts["batch"]), facts["seconds"])
                self._started(facts["batch"])
            case "tasks.finalized":
                counts.finalize.note(len(facts["endings"]), facts["seconds"])
                self._finalized(facts["endings"], facts["moved"])
            case "tasks.recovered":
                for kind, count in facts["kinds"].items():
                    counts.recovered[_OUTCOMES.get(kind, "requeued")] += count
            case "tasks.expired":
                counts.expired += facts["count"]
            case "workers.swept":
                counts.sweeps += 1
                counts.swept_workers += facts["workers"]
            case "child.ended":
                counts.child_ends["expected" if facts["expected"] else "unexpected"] += 1

    def _started(self, batch: Sequence[HeldTask]) -> None:
        """How long they have waited. Only the first start of each counts, because a retry would include the earlier
        runs."""
        now = datetime.now(UTC).timestamp() + self.ahead_s
        notes: dict[str, Callable[[float], None]] = {}
        for held in batch:
            row = held.row
            if not row.retry_count and not row.start_failures:
                note = notes.get(row.queue_name)
                if note is None:
                    note = notes[row.queue_name] = self.counts.waits(row.queue_name).note
                note(now - row.enqueued_at.timestamp())

    def _finalized(self, endings: Sequence[finalize.Ending], moved: Mapping[str, type]) -> None:
        ends: Counter[tuple[str, str, type | None]] = Counter()
        notes: dict[str, Callable[[float], None]] = {}
        for ending in endings:
            held = ending.held
            row, kind = held.row, moved.get(held.id)
            ends[row.queue_name, row.task_name, kind] += 1
            if kind is not Complete and kind is not None and _is_crash(ending.move):
                self.counts.crashed += 1
            if held.started is not None and held.settling_since is not None and kind is not Requeue:
                note = notes.get(row.task_name)
                if note is None:
                    note = notes[row.task_name] = self.counts.runs(row.task_name).note
                note(held.settling_since - held.started)
        for (queue, task, kind), count in ends.items():
            self.counts.end(queue, task, LOST if kind is None else _OUTCOMES.get(kind, HANDED_BACK), count)


def _is_crash(move: Move) -> bool:
    end = move.otherwise if isinstance(move, Retry) else move
    return isinstance(end, Fail) and end.outcome is TaskAttemptOutcome.WORKER_FAILURE
