"""What is on the screen, without the screen: each view says which polls it needs, which lines it shows, and what a key
does in it. A tab is a view; what `Enter` opens is another one, above it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, NamedTuple

from horsies.core.models.monitoring.cluster import Alert, Snapshot
from horsies.core.models.monitoring.tasks import MonitoringResult, to_jsonable
from horsies.core.monitoring.alerts import judge
from horsies.core.text import json_text
from horsies.core.types import Ok
from horsies.tui.lines import Line, ListRow, line, matching, named
from horsies.tui.polls import Poll, ServerClock
from horsies.tui.source import DataSource

SNAPSHOT_S = 2.0
HELD_S = 5.0
BEHIND_S = 10.0
LIST_S = 2.0


class Room(NamedTuple):
    """The cells that a view may fill."""

    width: int
    height: int


class Screenful(NamedTuple):
    """The lines that stay on top, those that scroll, and those below them."""

    heads: Sequence[Line]
    rows: Sequence[ListRow]
    below: Sequence[Line] = ()


class View:
    """Something that is shown. `selected` is the key of the row with the cursor, `top` the first row that is seen."""

    title = ""
    follows_cursor = False  # it shows something about the selected row, beside it

    def __init__(self) -> None:
        self.selected: str | None = None
        self.top = 0
        self.search = ""

    def polls(self) -> Sequence[Poll[Any]]:
        """What it needs to know, the most important first."""
        return ()

    def frame(self, room: Room, now: datetime) -> Screenful:
        """What it shows, of the rows only those that match the search."""
        whole = self.lines(room, now)
        if not self.search:
            return whole
        rows = matching(whole.rows, self.search)
        if not any(row.key is not None for row in rows):
            rows = [*rows, ListRow(line((f'nothing contains "{self.search}"', "dim")))]
        return Screenful(whole.heads, rows, whole.below)

    def lines(self, room: Room, now: datetime) -> Screenful:
        """All that it shows."""
        raise NotImplementedError

    def enter(self, row: ListRow) -> View | None:
        """Open what is selected: another view, or something in this one."""
        return None

    def press(self, key: str) -> bool:
        """Whether the key means something here."""
        return False

    def find(self, text: str) -> View | None:
        """Search for a text; the answer may be another view."""
        self.search = text
        return None

    def value(self, row: ListRow | None) -> Any:
        """What `y` copies."""
        return None if row is None else row.value


class Overview:
    """What every tab shows a part of: the snapshot, the tasks that workers hold, and the alerts that follow."""

    def __init__(self, source: DataSource, clock: ServerClock) -> None:
        self._source = source
        self._clock = clock
        self.snapshot = Poll(self._ask, SNAPSHOT_S)
        self.held: Poll[Mapping[str, int]] = Poll(source.held, HELD_S)

    async def _ask(self) -> MonitoringResult[Snapshot]:
        found = await self._source.snapshot()
        if isinstance(found, Ok):
            self._clock.set(found.ok_value.taken_at)
        return found

    def pace(self, *, is_in_front: bool) -> None:
        """Behind other tabs only the number of alerts is seen, which may be older."""
        self.snapshot.every_s = SNAPSHOT_S if is_in_front else BEHIND_S
        self.held.every_s = HELD_S if is_in_front else BEHIND_S

    def alerts(self) -> list[Alert]:
        snapshot = self.snapshot.value
        return [] if snapshot is None else judge(snapshot, self.held.value)

    def live_workers(self) -> list[str]:
        """The newest first, because a chart of the last hour needs few of many."""
        snapshot = self.snapshot.value
        found = [] if snapshot is None else [worker for worker in snapshot.workers if worker.is_live]
        return [worker.worker_id for worker in reversed(found)]


class FactsView(View):
    """The fields of any value, one below the other."""

    def __init__(self, title: str, value: Any) -> None:
        super().__init__()
        self.title = title
        self._value = value

    def lines(self, room: Room, now: datetime) -> Screenful:
        found = {one.name: getattr(self._value, one.name) for one in fields(self._value)}
        pairs = ((name.replace("_", " "), _said(value)) for name, value in found.items())
        return Screenful([], list(map(ListRow, named(pairs, room.width))))

    def value(self, row: ListRow | None) -> Any:
        return self._value


def _said(value: Any) -> Any:
    """Texts, numbers and times as they are, everything else as JSON."""
    if isinstance(value, str | int | float | datetime) or value is None:
        return value
    if isinstance(value, tuple | list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return json_text(to_jsonable(value)) if value else None


def facts_view(row: ListRow) -> View | None:
    """A view of what is selected, if it has fields."""
    if not is_dataclass(row.value):
        return None
    return FactsView((row.key or "").replace(":", " ", 1), row.value)


def nothing_yet(poll: Poll[Any]) -> ListRow:
    """Instead of an answer that has not come."""
    return ListRow(line(("…" if poll.problem is None else "nothing is known yet", "dim")))
