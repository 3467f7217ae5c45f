"""Makes claimed tasks RUNNING, whatever has piled up in one statement, and only then lets them reach a child (L-09)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from horsies.core import logs
from horsies.core.lifecycle.moves import Requeue
from horsies.core.store import tasks
from horsies.core.worker import outcome
from horsies.core.worker.dispatcher import Dispatcher, log_fields
from horsies.core.worker.fence import clock
from horsies.core.worker.finalizer import Finalizer
from horsies.core.worker.hand import Hand, Held, Phase
from horsies.core.worker.lanes import Lanes
from horsies.core.worker.loop import AWAY

log = logging.getLogger("horsies.worker")

MAX_BATCH = 500
LOOK_PAST = 64  # tasks without a free child that are passed over to find one that has


class Starter:
    """`wake()` when there are claimed tasks or free children; `step` is one batch."""

    def __init__(
        self,
        lanes: Lanes,
        worker_id: str,
        hostname: str,
        hand: Hand,
        dispatcher: Dispatcher,
        finalizer: Finalizer,
        aborts: Counter[str],
    ) -> None:
        self._aborts = aborts
        self._lanes = lanes
        self._worker_id = worker_id
        self._hostname = hostname
        self._hand = hand
        self._dispatcher = dispatcher
        self._finalizer = finalizer
        self._event = asyncio.Event()
        self.is_starting = False

    def wake(self) -> None:
        if self._hand.waiting:
            self._event.set()

    async def step(self) -> None:
        await self._event.wait()
        self._event.clear()
        batch = self._place()
        while batch:
            self.is_starting = True
            try:
                await self._start(batch)
            finally:
                self.is_starting = False
            batch = self._place()

    def hand_back(self) -> None:
        """Nothing more is started: what is only claimed goes back (W-51)."""
        while self._hand.waiting:
            held = self._hand.waiting.popleft()
            self._finalizer.put(held, Requeue(held.claim))

    def _place(self) -> list[Held]:
        """Tasks for which a child has room, in order; a place in the child is reserved for each."""
        batch: list[Held] = []
        passed: list[Held] = []
        waiting = self._hand.waiting
        while waiting and len(batch) < MAX_BATCH and len(passed) < LOOK_PAST and self._dispatcher.may_start:
            held = waiting.popleft()
            if self._dispatcher.place(held) is None:
                passed.append(held)
            else:
                held.phase = Phase.STARTING
                batch.append(held)
        waiting.extendleft(reversed(passed))
        return batch

    async def _start(self, batch: list[Held]) -> None:
        pids = [held.child.pid if held.child else 0 for held in batch]
        names = [held.child.name if held.child else "" for held in batch]
        try:
            async with self._lanes.connection() as conn:
                claims = [held.claim for held in batch]
                sent = clock()
                started = await tasks.start(conn, self._worker_id, self._hostname, claims, pids, names)
        except AWAY:
            self._unconfirmed(batch)
            raise
        self._dispatcher.accept([held for held in batch if held.id in started], sent)
        for held in batch:
            if held.id not in started:
                self._not_started(held)

    def _unconfirmed(self, batch: list[Held]) -> None:
        """Nobody knows whether they are RUNNING, so they do not run; they go back when the database answers (L-27)."""
        self._aborts["OWNERSHIP_UNCONFIRMED"] += len(batch)
        count = logs.counted(len(batch), "task")
        log.warning("OWNERSHIP_UNCONFIRMED: the start of %s was not confirmed; handed back", count)
        for held in batch:
            self._dispatcher.release(held)
            self._finalizer.put(held, Requeue(held.claim), uncertain=True)
        self.wake()  # for those behind them

    def _not_started(self, held: Held) -> None:
        self._dispatcher.release(held)
        if held.row.has_deadline:
            # Past its deadline or lost; if it is lost, this move finds nothing (L-25).
            self._finalizer.put(held, outcome.of_deadline(held, self._worker_id), uncertain=True)
            return
        self._aborts["CLAIM_LOST"] += 1
        log.info("CLAIM_LOST: the task was taken back before it started", extra={"horsies": log_fields(held)})
        self._dispatcher.forget(held)
