"""Signs of life: of each task in hand that lasts (both roles), of claims (lease renewal), of the worker itself.

All of it goes over one connection that nothing else occupies, each kind as one statement. A round also asks which
claims are still ours; the code of a lost one is stopped (R-11).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from time import monotonic
from typing import Any

import psutil

from horsies.core.models.recovery import RecoveryConfig
from horsies.core.store import tasks, workers
from horsies.core.store.tasks import Beat, Claimant, Connection
from horsies.core.worker.dispatcher import Dispatcher, log_fields
from horsies.core.worker.hand import Hand, Held, Phase, StopReason
from horsies.core.worker.pool import Child

log = logging.getLogger("horsies.worker")

FIRST_BEAT_S = 1.0
FINALIZING_AFTER_S = 1.0


class Heart:
    """One `step` looks what is due; the caller calls it about once a second."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        who: Claimant,
        hostname: str,
        pid: int,
        recovery: RecoveryConfig,
        max_claim_age: timedelta,
        registration: Mapping[str, Any],
        refresh_s: float,
        hand: Hand,
        dispatcher: Dispatcher,
    ) -> None:
        self._connect = connect
        self._conn: Connection | None = None
        self._connecting = asyncio.Lock()
        self._who = who
        self._hostname = hostname
        self._pid = pid
        self._claimer_s = recovery.claimer_heartbeat_interval_ms / 1000
        self._runner_s = recovery.runner_heartbeat_interval_ms / 1000
        self._max_claim_age = max_claim_age
        self._registration = registration
        self._refresh_s = refresh_s
        self._hand = hand
        self._dispatcher = dispatcher
        self._refreshed = 0.0
        self._has_said_hello = False
        self._born = monotonic()
        self._cpu: dict[int, tuple[float, float]] = {}

    async def step(self) -> None:
        now = monotonic()
        if now - self._refreshed >= self._refresh_s:
            await self.register()
        due = [held for held in self._hand if self._is_due(held, now)]
        if due:
            await self._round(now)
        late = [held for held in self._hand if self._is_late(held, now)]
        if late:
            await tasks.mark_finalizing(await self._connection(), self._who.worker_id, [held.claim for held in late])
            for held in late:
                held.marked = now

    async def register(self) -> None:
        """Insert or refresh the worker's row (R-40)."""
        started, self._has_said_hello = monotonic(), True
        row = {**self._registration, "age": started - self._born}
        await workers.register(await self._connection(), row)
        self._refreshed = started

    async def unregister(self) -> None:
        """The worker's last words (W-53), if it has said any."""
        if self._has_said_hello:
            await workers.unregister(await self._connection(), self._who.worker_id)

    async def check(self, held: Held) -> None:
        """Someone says this task was taken from us: ask."""
        await self._beat([held], vouch=False)

    async def close(self) -> None:
        if self._conn is not None:
            await self._conn.close()
            self._conn = None

    def _interval(self, held: Held) -> float:
        return self._claimer_s if held.phase in (Phase.CLAIMED, Phase.STARTING) else self._runner_s

    def _is_due(self, held: Held, now: float) -> bool:
        interval = self._interval(held)
        if held.last_beat:
            return now - held.last_beat >= interval
        return now - held.since >= min(FIRST_BEAT_S, interval)

    def _is_late(self, held: Held, now: float) -> bool:
        """A result that waits to be written is marked after a second, and again with every heartbeat (L-30)."""
        if held.settling_since is None or now - held.settling_since <= FINALIZING_AFTER_S:
            return False
        return not held.marked or now - held.marked >= self._runner_s

    async def _round(self, now: float) -> None:
        """A round asks about every claim in hand that has lasted a while, also those it does not vouch for."""
        asked = [held for held in self._hand if now - held.since >= FIRST_BEAT_S / 2]
        await self._beat(asked, vouch=True)
        waiting = [held.claim for held in asked if held.phase in (Phase.CLAIMED, Phase.STARTING)]
        if waiting:
            await tasks.renew(await self._connection(), self._who, waiting, self._max_claim_age)
        for held in asked:
            held.last_beat = now

    async def _beat(self, asked: Sequence[Held], *, vouch: bool) -> None:
        beats = [
            Beat(held.claim, vouch and self._vouches_for(held), self._sender(held), self._pid_of(held))
            for held in asked
        ]
        owned = await tasks.heartbeat(await self._connection(), self._who.worker_id, self._hostname, beats)
        for held in asked:
            if held.id not in owned and self._hand.holds(held) and held.phase is not Phase.SETTLING:
                log.warning(
                    "the task was taken from this worker, its code is stopped", extra={"horsies": log_fields(held)}
                )
                self._dispatcher.stop(held, StopReason.LOST)

    def _sender(self, held: Held) -> str:
        return f"{self._who.worker_id}/{held.child.pid}" if held.child else self._who.worker_id

    def _pid_of(self, held: Held) -> int:
        return held.child.pid if held.child else self._pid

    def _vouches_for(self, held: Held) -> bool:
        """What is in our hands is ours to vouch for; a task in its child only if that shows signs of life."""
        if held.child is None or held.phase not in (Phase.FED, Phase.STARTED):
            return True
        return not held.child.is_dead and self._shows_life(held.child)

    def _shows_life(self, child: Child) -> bool:
        if monotonic() - child.last_heard < self._runner_s:
            return True
        # Silent: C code may hold the interpreter. A child that uses the processor is alive all the same (W-01).
        try:
            used = sum(psutil.Process(child.pid).cpu_times()[:2])
        except psutil.Error:
            return False
        before, at = self._cpu.get(child.pid, (0.0, 0.0))
        self._cpu[child.pid] = (used, monotonic())
        return used > before or at == 0.0

    async def _connection(self) -> Connection:
        async with self._connecting:
            if self._conn is None or self._conn.closed:
                self._conn = await self._connect()
            return self._conn
