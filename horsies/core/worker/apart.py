"""Runs suspects apart (R-58). A suspect is a task that was interrupted by the deaths of its workers so often that the
next death would fail it. Perhaps another task killed those workers; so a suspect gets a worker to itself, and if that
worker dies too, it was the suspect.

The worker stops claiming and starting, returns what it has not started, and waits until everything else has ended. Then
it runs the suspect, alone. The function at the top decides; `Apart` keeps the one suspect whose turn it is. Neither the
suspect nor the others can starve. A worker that does not become free in time returns the suspect to the queue, and
waits twice as long for the next one. After each suspect, the other tasks have as much time as it took.
"""

import logging
from collections.abc import Callable
from enum import Enum, auto
from time import monotonic

from horsies.core.tasks.moves import Requeue
from horsies.core.worker.children import Children
from horsies.core.worker.dispatch import Dispatcher
from horsies.core.worker.finalize import Finalizer
from horsies.core.worker.in_hand import HeldTask, InHand, Phase, log_fields

log = logging.getLogger("horsies.worker")

PATIENCE_S = 60.0  # for a worker to become free, the first time
SHORTEST_PAUSE_S = 1.0


class Turn(Enum):
    """What happens to a suspect now."""

    START = auto()
    WAIT = auto()  # until the others have ended
    LATER = auto()  # it returns to the queue


def turn_of_suspect(others: int, waited_s: float, patience_s: float, rest_s: float) -> Turn:
    """`others`: tasks that this worker holds and that are no suspects; `rest_s`: how much longer it is their turn."""
    if others == 0:
        return Turn.START
    return Turn.LATER if rest_s > 0 or waited_s > patience_s else Turn.WAIT


class Apart:
    """The starter asks `may_place` before it places anything."""

    def __init__(
        self,
        in_hand: InHand,
        dispatcher: Dispatcher,
        children: Children,
        finalizer: Finalizer,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._in_hand = in_hand
        self._dispatcher = dispatcher
        self._children = children
        self._finalizer = finalizer
        self._clock = clock
        self._chosen: HeldTask | None = None
        self._since = 0.0
        self._rest_until = 0.0
        self._patience_s = PATIENCE_S

    def is_waiting(self) -> bool:
        """Whether a suspect waits for the others to end. It is asked often, and notices when a suspect has ended."""
        if self._chosen is not None and not self._in_hand.holds(self._chosen):
            self._end_turn()
            self._patience_s = PATIENCE_S
        return self._chosen is not None and self._chosen.phase is Phase.CLAIMED

    def may_place(self) -> bool:
        """Whether tasks that wait may be started now. If a suspect may, it is the only one that waits."""
        self.is_waiting()
        suspect = self._chosen or self._next()
        if suspect is None:
            return True
        if suspect.phase is not Phase.CLAIMED:  # it runs, or its end is being written
            self._hand_back(suspect)
            return False
        now = self._clock()
        waited_s = 0.0 if self._chosen is None else now - self._since
        others = sum(1 for held in self._in_hand if held not in self._in_hand.suspects)
        turn = turn_of_suspect(others, waited_s, self._patience_s, self._rest_until - now)
        if turn is Turn.LATER:
            self._postpone(now)
            return True
        if self._chosen is None:
            self._begin_turn(suspect, others)
        self._hand_back(suspect)
        return turn is Turn.START

    def _next(self) -> HeldTask | None:
        if not self._in_hand.suspects:
            return None
        return next((held for held in self._in_hand.waiting if held in self._in_hand.suspects), None)

    def _begin_turn(self, suspect: HeldTask, others: int) -> None:
        self._chosen, self._since = suspect, self._clock()
        log.warning(
            "the deaths of its workers have interrupted the task %d times; it runs alone, after the end of %d others",
            suspect.row.recoveries,
            others,
            extra={"horsies": log_fields(suspect)},
        )
        for child in self._children.children:
            self._dispatcher.take_back(child)

    def _end_turn(self) -> None:
        now = self._clock()
        self._rest_until, self._chosen = now + (now - self._since), None

    def _postpone(self, now: float) -> None:
        if self._chosen is not None:
            log.warning(
                "the worker did not become free within %g s; the task returns to the queue", self._patience_s,
                extra={"horsies": log_fields(self._chosen)},
            )  # fmt: skip
            self._patience_s *= 2
            self._end_turn()
        delay_s = max(SHORTEST_PAUSE_S, self._rest_until - now)
        for held in [held for held in self._in_hand.waiting if held in self._in_hand.suspects]:
            self._in_hand.waiting.remove(held)
            self._finalizer.put(held, Requeue(held.claim, delay_s))

    def _hand_back(self, suspect: HeldTask) -> None:
        """Everything else that waits is for other workers."""
        waiting = self._in_hand.waiting
        rest = [held for held in waiting if held is not suspect]
        for held in rest:
            waiting.remove(held)
            self._finalizer.put(held, Requeue(held.claim))
