"""Due schedules that are being handled. Newly due schedules go first; catching up gets the rest of each transaction, so
that a week of missed runs of one schedule does not hold up the others (S-36).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from horsies.core.scheduler.board import Entry


class Line:
    """Schedules that wait for their transaction."""

    def __init__(self) -> None:
        self._due: deque[Entry] = deque()
        self._failed: deque[Entry] = deque()
        self._behind: deque[Entry] = deque()

    def __bool__(self) -> bool:
        return bool(self._due or self._failed or self._behind)

    def add(self, entries: Iterable[Entry]) -> None:
        """These are due. A schedule that failed the last time gets its own transaction."""
        for entry in entries:
            (self._failed if entry.failures else self._due).append(entry)

    def add_again(self, entry: Entry) -> None:
        """This schedule has more runs to catch up."""
        self._behind.append(entry)

    def next_batch(self, most: int) -> list[Entry]:
        """The schedules of the next transaction."""
        if not self._due and self._failed:
            return [self._failed.popleft()]
        batch: list[Entry] = []
        for waiting in (self._due, self._behind):
            while waiting and len(batch) < most:
                batch.append(waiting.popleft())
        return batch

    def clear(self) -> list[Entry]:
        """Return all of them."""
        left = [*self._due, *self._failed, *self._behind]
        for waiting in (self._due, self._failed, self._behind):
            waiting.clear()
        return left
