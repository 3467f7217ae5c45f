"""How a worker ends: it takes nothing new, returns what has not begun, lets running tasks finish, writes their ends,
and leaves (W-50).

Workflows are advanced to the last end that was written, as far as the grace period allows; other workers do the rest
(R-30). `ForcedShutdown` informs recovery hooks about tasks that were interrupted because the worker was told to stop at
once (W-52, R-73). What becomes of such a task is decided in `finalize.py`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from horsies.core.child.wire import Kind, pack
from horsies.core.db import AWAY, Pool
from horsies.core.hooks import FailureReason, Job, JobInterrupted
from horsies.core.recovery.hooks import HookCaller
from horsies.core.store.task_reads import jobs
from horsies.core.tasks.moves import Fail, Move, Retry
from horsies.core.text import counted
from horsies.core.types import TaskAttemptOutcome
from horsies.core.worker import advance, claim, dispatch, liveness, start
from horsies.core.worker.children import Children
from horsies.core.worker.in_hand import HeldTask, InHand, Phase

log = logging.getLogger("horsies.worker")

LOOK_S = 0.02
LAST_LOOK_S = 2.0  # for the answer to a claim that was under way when the stop came
LAST_STEPS_S = 2.0  # after the grace period, for workflows whose tasks have ended
LAST_TRIES_S = 5.0  # for what the database has refused to write
LAST_WRITES_S = 10.0  # after a second signal, for the ends of the tasks that were interrupted
VIEWS_S = 2.0  # a database that is away does not hold up a worker that was told to hurry
SIGN_OFF_S = 5.0
AGAIN_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """One orderly end. `cut_off()` is called before children with running tasks are killed."""

    in_hand: InHand
    claimer: claim.Claimer
    starter: start.Starter
    dispatcher: dispatch.Dispatcher
    children: Children
    advancer: advance.Advancer
    unwritable: Mapping[str, str]  # tasks in hand whose end was refused, and why
    force: asyncio.Event
    grace_s: float | None
    cut_off: Callable[[], Awaitable[None]]

    async def run(self) -> None:
        """Return when the worker holds nothing any more, or when it was told to hurry and has done what it could."""
        self.claimer.is_stopped = True
        self.claimer.room()  # there is none any more: it takes back its mark, however long tasks still run
        self.dispatcher.is_stopping = True
        self.children.is_replacing = False
        self.starter.hand_back()
        for child in self.children.children:
            child.write(pack(Kind.LEAVING, 0))
            self.dispatcher.take_back(child)
        running = self.in_hand.count(Phase.FED, Phase.STARTED)
        if running:
            log.info("stopping: waiting for %s; %s", counted(running, "running task"), self._prospects(running))
        if settling := self.in_hand.count(Phase.SETTLING):
            log.info("stopping: waiting for the end of %s to be written", counted(settling, "task"))
        if not await self._finished(self.grace_s):
            await self._cut_running_tasks()

    def _prospects(self, running: int) -> str:
        """What ends the wait, for the person at the terminal."""
        them = "it" if running == 1 else "them"
        if self.grace_s is None:
            return f"press Ctrl-C again (or send a second signal) to interrupt {them}"
        return f"{self.grace_s:g} s or a second Ctrl-C (or signal) will interrupt {them}"

    async def _finished(self, grace_s: float | None) -> bool:
        """Everything has ended and is written. False when told to hurry, or when code still runs after the grace
        period."""
        loop = asyncio.get_running_loop()
        until = None if grace_s is None else loop.time() + grace_s
        last_look = loop.time() + LAST_LOOK_S
        last_try = loop.time() + LAST_TRIES_S
        while self._is_open or (self.claimer.is_looking and loop.time() < last_look):
            self.starter.hand_back()  # also what a claim that was under way has brought
            if self.force.is_set():
                return False
            if until is not None and loop.time() > until and self._is_running():
                return False
            if until is not None and loop.time() > until + LAST_STEPS_S and not self.in_hand:
                return True
            is_over = until is not None and loop.time() > until + LAST_STEPS_S
            if is_over or (loop.time() > last_try and self._is_all_refused()):
                self._give_up()
                return True
            await asyncio.sleep(LOOK_S)
        return True

    @property
    def _is_open(self) -> bool:
        return bool(self.in_hand) or not self.advancer.is_idle

    def _is_all_refused(self) -> bool:
        return bool(self.in_hand) and all(held.id in self.unwritable for held in self.in_hand)

    def _give_up(self) -> None:
        """What cannot be written does not keep the worker from ending; others recover the tasks by their silence."""
        left = list(self.in_hand)
        why = next((self.unwritable[held.id] for held in left if held.id in self.unwritable), "the database is away")
        names = ", ".join(held.id for held in left[:5])
        log.error("the end of %s could not be written and is given up (%s): %s", counted(len(left), "task"), names, why)

    def _is_running(self) -> bool:
        return any(child.fed or child.line or child.starting for child in self.children.children)

    async def _cut_running_tasks(self) -> None:
        running = self.in_hand.count(Phase.FED, Phase.STARTED)
        log.warning("stopping at once: %s interrupted", counted(running, "running task"))
        await self.cut_off()
        for child in list(self.children.children):
            self.children.kill(child)
        loop = asyncio.get_running_loop()
        until = loop.time() + LAST_WRITES_S
        while self._is_open and loop.time() < until:
            self.starter.hand_back()
            await asyncio.sleep(LOOK_S)
        if self.in_hand:
            left = counted(len(self.in_hand), "task")
            log.error("%s could not be written before the end; other workers will recover them", left)
        elif self._is_open:
            log.warning("workflows could not be advanced before the end; other workers will advance them")


class ForcedShutdown:
    """`look` before the children are killed, `settled` for each end that is written while there are `views` of
    interrupted tasks, `tell` when that is done."""

    def __init__(self, pool: Pool, in_hand: InHand, hooks: HookCaller) -> None:
        self._pool = pool
        self._in_hand = in_hand
        self._hooks = hooks
        self.views: dict[str, Job] = {}
        self._cut: list[Job] = []

    async def look(self) -> None:
        """Load the views now, because afterwards the rows no longer name their owners."""
        # Also those of which we do not know yet that they have started (W-30).
        running = [held.id for held in self._in_hand if held.phase in (Phase.FED, Phase.STARTED)]
        if running and self._hooks.has(JobInterrupted):
            with contextlib.suppress(TimeoutError, *AWAY):
                async with asyncio.timeout(VIEWS_S), self._pool.connection() as conn:
                    self.views = {job.id: job for job in await jobs(conn, running)}

    def settled(self, held: HeldTask, move: Move, moved: bool) -> None:
        """This is also called for tasks that ended by themselves at the last moment and were not interrupted."""
        view = self.views.pop(held.id, None)
        end = move.otherwise if isinstance(move, Retry) else move
        is_cut = isinstance(end, Fail) and end.outcome is TaskAttemptOutcome.WORKER_FAILURE
        if view is not None and moved and is_cut:
            self._cut.append(view)

    async def tell(self) -> None:
        await self._hooks.interrupted(self._cut, reason=FailureReason.SHUTDOWN)


async def sign_off(claimer: claim.Claimer, heartbeats: liveness.Heartbeats, *, may_retry: bool) -> None:
    """Delete what a leaving worker has in the database (W-53). This is repeated if necessary, because lost connections
    are noticed only when they are used."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SIGN_OFF_S):
            while True:
                try:
                    await claimer.unknown.hand_back_all()
                    await claimer.withdraw_idle()
                    await heartbeats.unregister()
                    return
                except AWAY:
                    if not may_retry:
                        return
                    await asyncio.sleep(AGAIN_S)
