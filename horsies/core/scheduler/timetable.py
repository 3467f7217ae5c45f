"""The enabled schedules, when each must be checked next (`Timetable`), and those that are due and wait for their
transaction (`DueQueue`).

Both are in memory, so that the cost of a check depends on the due runs and not on the number of schedules. They are
only a hint, which is updated page by page; the firing transaction reads the states again under the locks. Newly due
schedules go first. Catching up gets the rest of each transaction, so that a week of missed runs of one schedule does
not hold up the others (S-36).
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from horsies.core.models.schedule import TaskSchedule
from horsies.core.models.tasks import TaskSendPayload
from horsies.core.scheduler.plan import config_hash
from horsies.core.store.schedules import ScheduleState

AT_ONCE = datetime.min.replace(tzinfo=UTC)
PAGE = 1_000


@dataclass(slots=True, eq=False)
class Entry:
    """One schedule. `changed_at` and `definition` belong to a run-time schedule; a schedule of the code has neither."""

    schedule: TaskSchedule
    changed_at: datetime | None = None
    definition: dict[str, Any] | None = field(default=None, repr=False)
    config_hash: str = ""
    payload: TaskSendPayload | None = field(default=None, repr=False)
    at: datetime | None = None  # when to check it; None: it is being handled, or left for the next check
    is_begun: bool = False  # it has a state of this configuration
    failures: int = 0  # in a row
    misses: int = 0  # checks in a row at which another process held it

    def __post_init__(self) -> None:
        self.config_hash = config_hash(self.schedule)

    @property
    def name(self) -> str:
        return self.schedule.name


class Timetable:
    """The enabled schedules by name, in the order of their next check."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self._heap: list[tuple[datetime, str]] = []
        self._urgent: dict[str, None] = {}  # schedules to check at once; they are not in the heap
        self._later: set[str] = set()
        self._unread: list[str] = []
        self._pages: list[str] = []

    def put(self, entry: Entry) -> None:
        """Add a schedule, or replace the one with its name. It is checked at once."""
        self.entries[entry.name] = entry
        self._unread.append(entry.name)
        self.arm(entry, AT_ONCE)

    def drop(self, name: str) -> None:
        self.entries.pop(name, None)

    def arm(self, entry: Entry, at: datetime | None) -> None:
        """Check it at that time."""
        if entry.at == at or self.entries.get(entry.name) is not entry:
            return
        entry.at = at
        if at == AT_ONCE:
            self._urgent[entry.name] = None
        elif at is not None:
            heapq.heappush(self._heap, (at, entry.name))
            if len(self._heap) > 2 * len(self.entries) + PAGE:  # schedules were moved again and again
                self._heap = [(one.at, name) for name, one in self.entries.items() if one.at not in (None, AT_ONCE)]
                heapq.heapify(self._heap)

    def later(self, entry: Entry) -> None:
        """Check it at the next check, not before (S-39)."""
        entry.at = None
        self._later.add(entry.name)

    def begin_check(self) -> None:
        """Schedules that were left for the next check are due again."""
        for name in self._later:
            if (entry := self.entries.get(name)) is not None and entry.at is None:
                self.arm(entry, AT_ONCE)
        self._later.clear()

    def take_due(self, now: datetime) -> list[Entry]:
        """The schedules that are due for a check, the longest due first. Each must be armed again, or left for
        later."""
        found = [entry for name in self._urgent if (entry := self._armed(name, AT_ONCE)) is not None]
        self._urgent.clear()
        while self._heap and self._heap[0][0] <= now:
            at, name = heapq.heappop(self._heap)
            if (entry := self._armed(name, at)) is not None:
                entry.at = None
                found.append(entry)
        for entry in found:
            entry.at = None
        return found

    @property
    def next_look(self) -> datetime | None:
        """When the first of them must be checked."""
        if any(self._armed(name, AT_ONCE) for name in self._urgent):
            return AT_ONCE
        while self._heap:
            at, name = self._heap[0]
            if self._armed(name, at) is not None:
                return at
            heapq.heappop(self._heap)
        return None

    def _armed(self, name: str, at: datetime) -> Entry | None:
        """The schedule of this name, if it is still armed for that time."""
        entry = self.entries.get(name)
        return entry if entry is not None and entry.at == at else None

    @property
    def has_unread(self) -> bool:
        """Whether there are schedules whose states have not been read yet."""
        return bool(self._unread)

    def next_page(self) -> list[str]:
        """The names of new schedules, then some of all in turn: their states are read at this check."""
        if self._unread:
            page, self._unread = self._unread[:PAGE], self._unread[PAGE:]
            return page
        if not self._pages:
            self._pages = list(self.entries)
        page, self._pages = self._pages[-PAGE:], self._pages[:-PAGE]
        return page

    def note(self, names: Iterable[str], states: Mapping[str, ScheduleState]) -> None:
        """Take over the states that were read: another process may have sent, changed, moved or removed these
        schedules."""
        for name in names:
            entry, state = self.entries.get(name), states.get(name)
            if entry is None or entry.at is None:
                continue  # it is being handled
            if entry.at == AT_ONCE:
                if state is not None and state.config_hash == entry.config_hash and state.next_run_at is not None:
                    entry.is_begun = True
                    self.arm(entry, state.next_run_at)
                continue  # it will be checked anyway
            if state is None or state.config_hash != entry.config_hash:
                self.arm(entry, AT_ONCE)
            else:
                self.arm(entry, state.next_run_at or AT_ONCE)


class DueQueue:
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
