"""Self-fencing (R-101): makes sure that no code runs here when others may take it over.

`check` is called at every tick, before every heartbeat and after each reply to one. After a pause it runs before
everything else, except for what the sockets bring; so waiting tasks are checked once more before they are sent to a
child.
"""

from __future__ import annotations

import logging

from horsies.core.worker.dispatcher import Dispatcher, log_fields
from horsies.core.worker.fence import Fence
from horsies.core.worker.hand import Held, StopReason
from horsies.core.worker.pool import Child

log = logging.getLogger("horsies.worker")


class Guard:
    """Opens and closes the way to the children, tells them until when they may continue, and kills them when their time
    is over."""

    def __init__(self, fence: Fence, dispatcher: Dispatcher) -> None:
        self._fence = fence
        self._dispatcher = dispatcher

    def check(self) -> None:
        if self._fence.pulse.is_failing:
            self._dispatcher.shut()
        else:
            self._dispatcher.open()
        now = self._fence.clock()
        for child in self._dispatcher.pool.children:
            held = _most_silent(child)
            if held is None or child.is_killed:
                continue
            if self._fence.is_over(now, held.sign):
                self._kill(child, held, now - held.sign)
            else:
                self._fence.tell(child, held.sign, now)

    def _kill(self, child: Child, held: Held, silence_s: float) -> None:
        if self._fence.pulse.is_failing:
            why = f"the database confirmed no heartbeat for {silence_s:.1f} s, and others may take the task over soon"
        else:
            why = f"it has been silent and idle for {silence_s:.1f} s"
        log.error("child process %s is killed: %s", child.name, why, extra={"horsies": log_fields(held)})
        self._dispatcher.pool.kill(child, why=why)


def _most_silent(child: Child) -> Held | None:
    """The task inside the child whose last heartbeat is the oldest. A task that is no longer ours has been told to end,
    and has its own time for that."""
    ours = [held for held in child.fed.values() if held.stop is not StopReason.LOST]
    return min(ours, key=lambda held: held.sign, default=None)
