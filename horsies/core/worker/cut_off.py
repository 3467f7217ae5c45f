"""Informs recovery hooks about tasks that a forced shutdown has interrupted (W-52, R-73)."""

from __future__ import annotations

import asyncio
import contextlib

from horsies.core.brokers.pool import Pool
from horsies.core.brokers.results import AWAY
from horsies.core.hooks import FailureReason, Job, JobInterrupted
from horsies.core.lifecycle.moves import Fail, Move, Retry
from horsies.core.recovery.asking import Asker
from horsies.core.store.jobs import jobs
from horsies.core.types.status import TaskAttemptOutcome
from horsies.core.worker.hand import Hand, Held, Phase

LOOK_S = 2.0  # a database that is away does not hold up a worker that was told to hurry


class CutOff:
    """`look` before the children are killed, `settled` for each end that is written, `tell` when that is done."""

    def __init__(self, pool: Pool, hand: Hand, hooks: Asker) -> None:
        self._pool = pool
        self._hand = hand
        self._hooks = hooks
        self._views: dict[str, Job] = {}
        self._cut: list[Job] = []

    async def look(self) -> None:
        """Load the views now, because afterwards the rows no longer name their owners."""
        running = [held.id for held in self._hand if held.phase is Phase.STARTED]
        if running and self._hooks.has(JobInterrupted):
            with contextlib.suppress(TimeoutError, *AWAY):
                async with asyncio.timeout(LOOK_S), self._pool.connection() as conn:
                    self._views = {job.id: job for job in await jobs(conn, running)}

    def settled(self, held: Held, move: Move, moved: bool) -> None:
        """This is also called for tasks that ended by themselves at the last moment and were not interrupted."""
        if not self._views:
            return
        view = self._views.pop(held.id, None)
        end = move.otherwise if isinstance(move, Retry) else move
        is_cut = isinstance(end, Fail) and end.outcome is TaskAttemptOutcome.WORKER_FAILURE
        if view is not None and moved and is_cut:
            self._cut.append(view)

    async def tell(self) -> None:
        await self._hooks.interrupted(self._cut, reason=FailureReason.SHUTDOWN)
