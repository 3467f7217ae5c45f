"""Which waiting tasks a worker leaves to others, because it does not know their name or could not read their arguments
(O-31, O-32), and how it gets past them.

A claim brings whatever stands first in line. Tasks of unknown names go back to the queue at once, uncharged, and from
then on the worker claims by its own names, for as long as such tasks wait. So a worker that has met none pays nothing.

Many of them may stand in front of the others. So the worker walks along the line in small parts: a look (`line.sql`)
finds the next task that it knows, and the claim after it reads only the part that was looked at. The worker remembers
how far it has come, and begins again from the front after a pause, because tasks may have returned behind its back.
The pause is a multiple of the time that the walk took. Whatever stands in line, a statement reads a bounded number of
tasks, and walking takes a small part of the worker's time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from time import monotonic

from horsies.core import logs
from horsies.core.db import Connection
from horsies.core.sql import texts
from horsies.core.store import names as store
from horsies.core.store import tasks
from horsies.core.store.names import BEGIN, END, Level, Line, Place, Stretch
from horsies.core.tasks.moves import Complete, Leave, Move
from horsies.core.worker.idle import IdleMark

log = logging.getLogger("horsies.worker")

STAY_S = 60.0  # after the last such task was seen
SHORTEST_WALK_PAUSE_S = 1.0
WALK_FACTOR = 20  # the pause after a walk is so many times as long as the walk was
MOST_NAMED = 50  # names for which others are woken instead
MOST_LINES = 100  # of the log, one for each name
UNREADABLE_IN_A_ROW = 3  # then the name is left for a while
LEAVE_S = (2.0, 5.0, 15.0, 30.0)


class LeftTasks:
    """`known` gives the names of this worker; None: it takes whatever comes, and fails what it does not know."""

    def __init__(self, known: Callable[[], Collection[str] | None], clock: Callable[[], float] = monotonic) -> None:
        self._known = known
        self._clock = clock
        self._until = 0.0
        self._places: dict[Level, Place] = {}
        self._walk_began = 0.0
        self._walked_s = 0.0
        self._again_at = 0.0
        self._is_walking = False
        self._owes_bell = False  # a worker that knows such a task may not have been woken, because this one was
        self._names: dict[str, None] = {}  # that were met, the newest last
        self._logged: set[str] = set()
        self._unreadable: Counter[str] = Counter()  # in a row, by name
        self._paused: dict[str, float] = {}  # names that are left for a while, and until when
        self._bound: tuple[Collection[str], str] | None = None

    @property
    def is_on(self) -> bool:
        """Whether claims have to leave tasks out."""
        return self._clock() < self._until and self._known() is not None

    @property
    def names(self) -> list[str] | None:
        """Names that others should be woken for; None: there are none."""
        return [*list(self._names)[-MOST_NAMED:], *self._paused] or None if self.is_on else None

    @property
    def is_walking(self) -> bool:
        """Whether the last look has not come to the end of the line."""
        return self._is_walking

    def pause_s(self) -> float | None:
        """In how many seconds to begin again from the front; None if nothing was passed."""
        return max(0.0, self._again_at - self._clock()) if self._places and self.is_on else None

    def ours_first(self, rows: list[tasks.Claimed]) -> tuple[list[tasks.Claimed], int]:
        """The tasks that were claimed, those of unknown names last and without a seat; and how many are ours."""
        known = self._known()
        if known is None or all(row.task_name in known for row in rows):
            return rows, len(rows)
        others = [row._replace(child=None) for row in rows if row.task_name not in known]
        self._owes_bell |= self._meet({row.task_name for row in others})
        ours = [row for row in rows if row.task_name in known]
        return [*ours, *others], len(ours)

    async def line(
        self, conn: Connection, order: tasks.ClaimOrder, mark: IdleMark, only: Sequence[str] | None = None
    ) -> Line:
        """What the next claim may read. A claim of `only` some tasks needs no look."""
        if only is not None:
            return Line(self._ours(), ())
        began = self._clock()
        if not self._is_walking and began >= self._again_at:
            self._places.clear()
        if not self._is_walking:
            self._walked_s = 0.0
        bound = self._ours()
        found = await store.look(conn, order.queues, bound, self._places)
        self._owes_bell |= self._meet({name for one in found for name in one.others})
        parts = [part for one in found if (part := self._pass(one)) is not None]
        self._walked_s += self._clock() - began
        self._is_walking = any(one.is_cut for one in found)
        left = [(one.queue, one.other_id) for one in found if one.other_id]
        if self._owes_bell and left:
            await mark.hand_on(conn, self.names, left)
            self._owes_bell = False
        return Line(bound, tuple(parts))

    def claimed(self, order: tasks.ClaimOrder, line: Line, rows: Sequence[tasks.Claimed]) -> None:
        """These came of that look. Where nothing did although there was room, what stands there cannot be claimed now,
        and the walk goes on behind it; not under a cap, which may be all that is in the way."""
        taken = Counter((row.queue_name, row.priority) for row in rows)
        for level, _, until in line.parts:
            if until != END and not taken[level] and not order.counted and len(rows) < order.budget:
                self._places[level] = until
        if self._is_walking and order.counted and not rows and line.parts:
            self._is_walking = False
        if not self._is_walking:
            self._again_at = self._clock() + max(SHORTEST_WALK_PAUSE_S, WALK_FACTOR * self._walked_s)

    def ended(self, name: str, move: Move) -> None:
        """A task of this name has run, or its arguments could not be read and it was left. If that happens again and
        again, the name is left for a while: a newer worker may be able to read them."""
        if isinstance(move, Leave):
            self._could_not_read(name)
        elif self._unreadable and isinstance(move, Complete):
            self._unreadable.pop(name, None)
            self._paused.pop(name, None)

    def _could_not_read(self, name: str) -> None:
        self._unreadable[name] += 1
        rounds = self._unreadable[name] // UNREADABLE_IN_A_ROW
        if rounds and self._unreadable[name] % UNREADABLE_IN_A_ROW == 0:
            self._paused[name] = self._clock() + LEAVE_S[min(rounds, len(LEAVE_S)) - 1]
            self._stay()
            self._owes_bell = True

    def _ours(self) -> str:
        """The names of which tasks are claimed now, as a bound array."""
        known, now = self._known() or (), self._clock()
        self._paused = {name: until for name, until in self._paused.items() if until > now}
        if self._paused:
            return texts(sorted(name for name in known if name not in self._paused))
        if self._bound is None or self._bound[0] is not known:
            self._bound = (known, texts(sorted(known)))
        return self._bound[1]

    def _pass(self, found: Stretch) -> tuple[Level, Place, Place] | None:
        """Go past what stands before the first task that is ours, and return the part that begins with it."""
        if found.passed is not None:
            self._places[found.level] = found.passed
        if found.first is None:
            return None
        return found.level, self._places.get(found.level, BEGIN), found.last if found.is_cut else END

    def _meet(self, names: Collection[str]) -> bool:
        """Whether one of these names is unknown, and was not met before."""
        known = self._known() or ()
        names = [name for name in names if name not in known]  # the others are only left for a while
        if not names:
            return False
        self._stay()
        fresh = [name for name in names if name not in self._names]
        for name in names:
            self._names.pop(name, None)
            self._names[name] = None
        while len(self._names) > 10 * MOST_NAMED:
            del self._names[next(iter(self._names))]
        self._log([name for name in fresh if name not in self._logged])
        return bool(fresh)

    def _stay(self) -> None:
        now = self._clock()
        if now >= self._until:
            self._places.clear()
            self._names.clear()
            self._again_at, self._is_walking = 0.0, False
        self._until = now + STAY_S

    def _log(self, names: Sequence[str]) -> None:
        for name in names:
            if len(self._logged) < MOST_LINES:
                self._logged.add(name)
                log.warning(
                    "tasks named %r are left to other workers: no module of this one defines such a task",
                    name,
                    extra={"horsies": {"task": name}},
                )
        if names and len(self._logged) == MOST_LINES:
            log.warning("more than %s are unknown here; no more of them are logged", logs.counted(MOST_LINES, "name"))
