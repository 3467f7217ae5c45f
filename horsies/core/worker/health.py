"""Whether this worker is ready. `Health` collects facts, and `problems` decides without I/O. Nothing is assumed: the
database is queried, and a child that is stopped or stuck does not count as alive. `metrics.py` serves the answer.
"""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic
from typing import NamedTuple

import psutil

from horsies.core.db import AWAY, Listener, answered_within, describe
from horsies.core.db import Pool as Connections
from horsies.core.store import workers
from horsies.core.worker import claim, fence, liveness
from horsies.core.worker.children import Child, Children

LOOK_AGAIN_S = 1.0  # an answer is valid this long, however often somebody asks
PING_S = 2.0
LATE_S = 10.0  # a claim pass that is later than this has not happened
SILENT_S = 5.0
_STILL = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


class Signs(NamedTuple):
    """The facts that were found."""

    is_started: bool
    is_stopping: bool
    database: str | None  # why it does not answer
    is_cut_off: bool  # the worker's signs of life fail: it starts nothing
    is_listening: bool
    claimed_s: float | None  # since the last claim pass; None: there was none
    claim_every_s: float
    children: int
    children_alive: int


def problems(signs: Signs) -> dict[str, str]:
    """Why this worker is not ready, by kind; empty if it is ready."""
    if signs.is_stopping:
        return {"stopping": "the worker takes no more tasks"}
    if not signs.is_started:
        return {"starting": "the worker is not serving yet", **({"database": signs.database} if signs.database else {})}
    found: dict[str, str] = {}
    if signs.database is not None:
        found["database"] = signs.database
    elif signs.is_cut_off:
        found["database"] = "the worker's heartbeats are not confirmed, so it starts nothing"
    if not signs.is_listening:
        found["listener"] = "the session that listens for notifications is lost"
    if signs.claimed_s is None or signs.claimed_s > signs.claim_every_s + LATE_S:
        since = "since it started" if signs.claimed_s is None else f"for {signs.claimed_s:.0f} s"
        found["claiming"] = f"no claim pass has succeeded {since}"
    if signs.children_alive < signs.children:
        found["children"] = f"{signs.children_alive} of {signs.children} child processes are alive"
    return found


class Health:
    """`problems()` is the newest answer. `on_clock(seconds)` gets how far the database's clock is ahead of ours;
    `redact` removes passwords from messages of the database."""

    def __init__(
        self,
        pool: Connections,
        *,
        claimer: claim.Claimer,
        children: Children,
        listener: Listener,
        pulse: fence.Pulse,
        processes: int,
        poll_s: float,
        is_stopping: Callable[[], bool],
        on_clock: Callable[[float], None],
        redact: Callable[[str], str],
    ) -> None:
        self._pool = pool
        self._claimer = claimer
        self._children = children
        self._listener = listener
        self._pulse = pulse
        self._processes = processes
        self._poll_s = poll_s
        self._is_stopping = is_stopping
        self._on_clock = on_clock
        self._redact = redact
        self._vital_signs = liveness.VitalSigns(SILENT_S)
        self._found: dict[str, str] = {}
        self._looked_at = 0.0
        self._looking = asyncio.Lock()
        self.is_started = False

    async def problems(self) -> dict[str, str]:
        """Why the worker is not ready. Whether it is stopping is always current."""
        async with self._looking:
            if not self._looked_at or monotonic() - self._looked_at >= LOOK_AGAIN_S:
                self._found = problems(await self._look())
                self._looked_at = monotonic()
        if self._is_stopping() and "stopping" not in self._found:
            self._looked_at = 0.0
            return {"stopping": "the worker takes no more tasks"}
        return self._found

    async def _look(self) -> Signs:
        database = await self._ping()
        claimed_at = self._claimer.looked_at
        return Signs(
            is_started=self.is_started,
            is_stopping=self._is_stopping(),
            database=database,
            is_cut_off=self._pulse.is_failing,
            is_listening=self._listener.connected or self._listener.is_off,
            claimed_s=None if claimed_at is None else monotonic() - claimed_at,
            claim_every_s=self._poll_s,
            children=self._processes,
            children_alive=self._alive(),
        )

    async def _ping(self) -> str | None:
        try:
            async with asyncio.timeout(PING_S), self._pool.connection() as conn:
                began = datetime.now(UTC)
                now, _ = await answered_within(PING_S, conn, workers.clock(conn))
                middle = began + (datetime.now(UTC) - began) / 2
        except AWAY as problem:
            return "no answer in time" if isinstance(problem, TimeoutError) else self._redact(describe(problem))
        self._on_clock((now - middle).total_seconds())
        return None

    def _alive(self) -> int:
        children = [child for child in self._children.children if child.is_ready and not child.is_dead]
        busy = self._vital_signs.look(child for child in children if child.fed)
        return sum(1 for child in children if _goes_on(child) and (not child.fed or child.pid in busy))


def _goes_on(child: Child) -> bool:
    """Whether the process exists and is not stopped; an idle child reports nothing, so its state is the only fact."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(child.pid).status() not in _STILL
    return False
