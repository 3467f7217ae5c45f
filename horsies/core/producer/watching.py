"""Watches a task until its end (P-50): its state and its progress, whenever one of them has changed. The end is told by
a notification, as for `get`; the rest is looked for every second, because progress is written about as often.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from horsies.core.models.tasks import TaskInfo
from horsies.core.producer.waiter import Interrupted
from horsies.core.types import TASK_TERMINAL_STATES, Ok, pause, run_sync

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

EVERY_MS = 1_000
LATE_S = 1.5  # the last progress may be written that much later than the end
AWAY_S = 30.0  # a database that is away for longer ends the watching
RETRY_S = 0.5


class Watching:
    """One watch. `next` returns the next change, and None after the last one, or if there is no such task."""

    def __init__(self, broker: PostgresBroker, task_id: str) -> None:
        self._broker = broker
        self._task_id = task_id
        self._last: TaskInfo | None = None
        self._has_ended = False
        self._is_over = False

    async def next_async(self) -> TaskInfo | None:
        """Wait for the next change; raise if the database is away for too long."""
        while not self._is_over:
            info = None if await self._is_interrupted() else await self._look()
            if info is None:
                break
            is_new = _seen(info) != _seen(self._last)
            self._last = info
            if info.status in TASK_TERMINAL_STATES:
                # An unfinished progress may be an old one, or the first one may still come: it is looked at once more.
                is_whole = info.progress is not None and info.progress.fraction == 1.0
                self._is_over = self._has_ended or is_whole
                self._has_ended = True
            if is_new:
                return info
        self._is_over = True
        return None

    next = run_sync(next_async)

    async def _is_interrupted(self) -> bool:
        """Wait until there may be something new; whether this process has stopped waiting instead."""
        if self._has_ended:
            await pause(LATE_S)
        elif self._last is not None:
            return isinstance(await self._broker.wait_async(self._task_id, EVERY_MS), Interrupted)
        return False

    async def _look(self) -> TaskInfo | None:
        until = monotonic() + AWAY_S
        while True:
            found = await self._broker.get_task_info_async(self._task_id)
            if isinstance(found, Ok) or not found.error.retryable or monotonic() > until:
                return found.unwrap()
            if self._broker.has_stopped_waiting:
                return None
            await pause(RETRY_S)


def _seen(info: TaskInfo | None) -> Any:
    """What a watcher sees of a task."""
    if info is None:
        return None
    progress = info.progress
    return (
        info.status,
        info.retry_count,
        None if progress is None else (progress.attempt, progress.done, progress.total, progress.message),
    )
