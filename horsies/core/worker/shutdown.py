"""How a worker ends: it takes nothing new, returns what has not begun, lets running tasks finish, writes their ends,
and leaves (W-50).

Workflows are advanced to the last end that was written, as far as the grace period allows; other workers do the rest
(R-30).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from horsies.core import logs
from horsies.core.db.failures import AWAY
from horsies.core.worker.advance import Advancer
from horsies.core.worker.children import Children
from horsies.core.worker.claim import Claimer
from horsies.core.worker.dispatch import Dispatcher
from horsies.core.worker.finalize import Finalizer
from horsies.core.worker.in_hand import InHand, Phase
from horsies.core.worker.liveness import Heartbeats
from horsies.core.worker.start import Starter

log = logging.getLogger("horsies.worker")

LOOK_S = 0.02
LAST_LOOK_S = 2.0  # so long for the answer to a claim that was under way when the stop came
LAST_STEPS_S = 2.0  # after the grace: so long for workflows whose tasks have ended
LAST_WORD_S = 5.0
AGAIN_S = 0.25
LAST_WRITES_S = 10.0  # after a second signal: so long for the ends of the tasks that were cut off


async def say_last_words(claimer: Claimer, heart: Heartbeats, *, may_retry: bool) -> None:
    """Delete what a leaving worker has in the database (W-53). This is repeated if necessary, because lost connections
    are noticed only when they are used."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORD_S):
            while True:
                try:
                    await claimer.hand_back_strays()
                    await claimer.rise()
                    await heart.unregister()
                    return
                except AWAY:
                    if not may_retry:
                        return
                    await asyncio.sleep(AGAIN_S)


class Shutdown:
    """One orderly end. `cut_off()` is called before children with running tasks are killed."""

    def __init__(
        self,
        hand: InHand,
        starter: Starter,
        dispatcher: Dispatcher,
        finalizer: Finalizer,
        advancer: Advancer,
        children: Children,
        claimer: Claimer,
        *,
        force: asyncio.Event,
        grace_s: float | None,
        cut_off: Callable[[], Awaitable[None]],
    ) -> None:
        self._hand = hand
        self._starter = starter
        self._dispatcher = dispatcher
        self._finalizer = finalizer
        self._advancer = advancer
        self._children = children
        self._claimer = claimer
        self._force = force
        self._grace_s = grace_s
        self._cut_off = cut_off

    async def run(self) -> None:
        """Return when the worker holds nothing any more, or when it was told to hurry and has done what it could."""
        self._claimer.is_stopped = True
        self._dispatcher.is_stopping = True
        self._children.is_replacing = False
        self._starter.hand_back()
        for child in self._children.children:
            self._dispatcher.take_back(child)
        running = self._hand.count(Phase.FED, Phase.STARTED)
        if running:
            log.info("stopping: waiting for %s", logs.counted(running, "running task"))
        if not await self._finished(self._grace_s):
            await self._cut_running_tasks()

    async def _finished(self, grace_s: float | None) -> bool:
        """Everything has ended and is written. False when told to hurry, or when code still runs after the grace
        period."""
        loop = asyncio.get_running_loop()
        until = None if grace_s is None else loop.time() + grace_s
        last_look = loop.time() + LAST_LOOK_S
        while self._is_open or (self._claimer.is_looking and loop.time() < last_look):
            self._starter.hand_back()  # also what a claim that was under way has brought in meanwhile
            if self._force.is_set():
                return False
            if until is not None and loop.time() > until and self._is_running():
                return False
            if until is not None and loop.time() > until + LAST_STEPS_S and not self._hand:
                return True
            await asyncio.sleep(LOOK_S)
        return True

    @property
    def _is_open(self) -> bool:
        return bool(self._hand) or not self._advancer.is_idle

    def _is_running(self) -> bool:
        return any(child.fed or child.line or child.starting for child in self._children.children)

    async def _cut_running_tasks(self) -> None:
        running = self._hand.count(Phase.FED, Phase.STARTED)
        log.warning("stopping at once: %s interrupted", logs.counted(running, "running task"))
        await self._cut_off()
        for child in list(self._children.children):
            self._children.kill(child)
        loop = asyncio.get_running_loop()
        until = loop.time() + LAST_WRITES_S
        while self._is_open and loop.time() < until:
            self._starter.hand_back()
            await asyncio.sleep(LOOK_S)
        if self._hand:
            left = logs.counted(len(self._hand), "task")
            log.error("%s could not be written before the end; other workers will recover them", left)
        elif self._is_open:
            log.warning("workflows could not be advanced before the end; other workers will advance them")
