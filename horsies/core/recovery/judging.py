"""Decides when a worker is dead, for certain or probably (R-100). Pure: registry, system and server provide the
facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from horsies.core.lifecycle.moves import Claim
from horsies.core.lifecycle.recovery import InFlight
from horsies.core.recovery.processes import Process
from horsies.core.store.evidence import Judge, Registered
from horsies.core.types.status import TaskStatus


class Death(Enum):
    """What the evidence says about the death of a worker."""

    UNPROVEN = "not proven"
    PROBABLE = "probably dead"  # cut off, perhaps: what it has only claimed may go back
    CERTAIN = "certainly dead"  # it cannot come back


def judge(worker: Registered, me: Judge, process: Process, *, is_lock_held: bool) -> Death:
    """A free lock alone proves nothing, because a connection may have been reset; a missing process whose session still
    exists proves nothing either."""
    if worker.worker_id == me.worker_id or is_lock_held:
        return Death.UNPROVEN
    if is_in_sight(worker, me) and is_gone(process, worker.process_start):
        return Death.CERTAIN
    return Death.PROBABLE if worker.is_silent else Death.UNPROVEN


def is_in_sight(worker: Registered, me: Judge) -> bool:
    """Whether the two see the same processes. Unknown facts prove nothing."""
    theirs = (worker.hostname, worker.boot_id, worker.pid_namespace)
    return None not in theirs and theirs == (me.hostname, me.boot_id, me.pid_namespace)


def is_gone(process: Process, start: int | None = None) -> bool:
    """Whether the process that began at `start` has ended. Its pid may belong to another process by now."""
    if process.is_there is None:
        return False
    if not process.is_there or process.has_ended:
        return True
    return start is not None and process.start is not None and process.start != start


class Shares(NamedTuple):
    """The tasks of a dead worker by what becomes of them."""

    requeued: list[InFlight]  # nothing of them had begun
    crashed: list[InFlight]  # by their own policy
    swept: list[InFlight]  # by the sweep procedure
    spared: list[InFlight]  # their process is still there


def share_out(
    tasks: Iterable[InFlight], is_child_gone: Callable[[int | None], bool], was_noted: Callable[[Claim], bool]
) -> Shares:
    """`was_noted`: whether a child had noted that it was about to call this task's function."""
    shares = Shares([], [], [], [])
    for task in tasks:
        is_running = task.status is TaskStatus.RUNNING
        if is_running and not is_child_gone(task.worker_pid):
            shares.spared.append(task)
        elif is_running and not was_noted(task.claim):
            shares.requeued.append(task)
        elif task.is_enrolled:
            shares.swept.append(task)
        elif is_running:
            shares.crashed.append(task)
        else:
            shares.requeued.append(task)
    return shares
