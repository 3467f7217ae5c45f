"""Which waiting tasks a worker leaves to others, because it does not know their name or could not read their arguments
(O-31, O-32), and how it gets past them; and how async tasks get past sync ones for which no child is idle (W-30a).

A claim brings whatever stands first in line. Tasks of unknown names go back to the queue at once, uncharged, and from
then on the worker claims by its own names, for as long as such tasks wait. So a worker that has met none pays nothing.

Many of them may stand in front of the others. So the worker walks along the line in small parts: a look (`line.sql`)
finds the next task that it knows, and the claim after it reads only the part that was looked at. The worker remembers
how far it has come, and begins again from the front after a pause, because tasks may have returned behind its back.
The pause is a multiple of the time that the walk took. Whatever stands in line, a statement reads a bounded number of
tasks, and walking takes a small part of the worker's time.

The other walk is that of a worker all of whose children run async tasks, and so have room for more of these only. An
ordinary claim reads as many tasks as there is room for, so it finds none behind so many sync tasks. Then the worker
claims by the names of its async tasks, and walks past the others in the same way; every ten seconds it lets nothing
pass for ten, so that a child becomes idle.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from time import monotonic

from horsies.core.db import Connection
from horsies.core.sql import texts
from horsies.core.store import caps, tasks
from horsies.core.store import names as store
from horsies.core.store.names import BEGIN, END, Level, Line, Place, Stretch
from horsies.core.tasks.moves import Complete, Leave, Move
from horsies.core.text import counted
from horsies.core.worker.idle import IdleMark

log = logging.getLogger("horsies.worker")

STAY_S = 60.0  # after the last such task was seen
SHORTEST_WALK_PAUSE_S = 1.0
WALK_FACTOR = 20  # the pause after a walk is so many times as long as the walk was
TURN_S = 10.0  # in which async tasks overtake sync ones, or do not; `claim.sql` has the same
MOST_NAMED = 50  # names for which others are woken instead
MOST_LINES = 100  # of the log, one for each name
UNREADABLE_IN_A_ROW = 3  # then the name is left for a while
LEAVE_S = (2.0, 5.0, 15.0, 30.0)


class LeftTasks:
    """`known` gives the names of this worker; None: it takes whatever comes, and fails what it does not know."""

    def __init__(self, known: Callable[[], Collection[str] | None], clock: Callable[[], float] = monotonic) -> None:
        self._known = known
        self._clock = clock
        self.has_met_any = False  # nothing here is asked before, except for names, ends and claims of async tasks only
        self._until = 0.0
        self._past_unknown = Walk(clock)
        self._overtaking = Overtaking(clock)
        self._walk: Walk | None = None  # that of the last claim
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
    def is_at_work(self) -> bool:
        """Whether tasks are left or overtaken at this time."""
        return self.is_on or self._overtaking.is_under_way

    @property
    def names(self) -> list[str] | None:
        """Names that others should be woken for; None: there are none."""
        return [*list(self._names)[-MOST_NAMED:], *self._paused] or None if self.is_on else None

    @property
    def is_walking(self) -> bool:
        """Whether the last look has not come to the end of the line."""
        return self._walk is not None and self._walk.is_under_way

    def pause_s(self) -> float | None:
        """In how many seconds to look again, although nothing has happened; None: there is no reason to."""
        turn_s = self._overtaking.pause_s()
        if self._walk is None or not self._walk.places:
            return turn_s
        walk_s = self._walk.pause_s()
        return walk_s if turn_s is None else min(walk_s, turn_s)

    def ours_first(self, rows: list[tasks.Claimed]) -> tuple[list[tasks.Claimed], int]:
        """The tasks that were claimed, those of unknown names last and without a seat; and how many are ours."""
        known = self._known()
        if known is None or all(row.task_name in known for row in rows):
            return rows, len(rows)
        others = [row._replace(child=None) for row in rows if row.task_name not in known]
        self._owes_bell |= self._meet({row.task_name for row in others})
        ours = [row for row in rows if row.task_name in known]
        return [*ours, *others], len(ours)

    def may_matter(self, order: tasks.ClaimOrder) -> bool:
        """Whether this claim has to ask for its `line`. If anything was met, this is asked before every claim."""
        self._walk = None
        is_for_async = order.concurrency > 1 and order.sync_budget <= 0
        if not is_for_async:
            self._overtaking.rest()
        return is_for_async or self.is_on

    async def line(
        self, conn: Connection, order: tasks.ClaimOrder, mark: IdleMark, only: Sequence[str] | None = None
    ) -> tuple[tasks.ClaimOrder, Line | None]:
        """What the next claim may read; None: whatever stands there. A claim of `only` some tasks needs no look."""
        if only is not None:
            return order, Line(self._ours(), ()) if self.is_on else None
        if self._has_no_place_for_some(order):
            names = self._unpaused(order.async_names)
            found = await self._overtaking.look(conn, order, names, is_needed=self.is_on)
            if found is not None:
                return order, await self._line(conn, self._overtaking.walk, names, found, mark)
            order = order._replace(is_sync_turn=self._overtaking.is_sync_turn)
        if not self.is_on:
            return order, None
        names = self._ours()
        found = await self._past_unknown.look(conn, order.queues, names)
        return order, await self._line(conn, self._past_unknown, names, found, mark)

    async def _line(self, conn: Connection, walk: Walk, names: str, found: list[Stretch], mark: IdleMark) -> Line:
        self._walk, self.has_met_any = walk, True
        if self._known() is not None:
            self._owes_bell |= self._meet({name for one in found for name in one.others})
        left = [(one.queue, one.other_id) for one in found if one.other_id]
        if self._owes_bell and left:
            await mark.hand_on(conn, self.names, left)
            self._owes_bell = False
        return Line(names, walk.parts(found))

    async def claimed(
        self, conn: Connection, order: tasks.ClaimOrder, line: Line, rows: Sequence[tasks.Claimed]
    ) -> None:
        """These came of that look. Where nothing did although there was room, what stands there cannot be claimed now,
        and the walk goes on behind it; unless a cap is in the way, or only sync tasks, for which no child is idle."""
        if self._walk is None:
            return
        missed = self._walk.missed(line, rows)
        queues = order.unfilled(rows) & {queue for queue, _ in missed}
        if queues and self._walk is self._past_unknown and self._has_no_place_for_some(order):
            queues = set()
        if queues and order.counted:
            queues = await _with_room(conn, order, queues)
        self._walk.go_on(missed, queues)

    def _has_no_place_for_some(self, order: tasks.ClaimOrder) -> bool:
        """Whether the children have room for async tasks only, and the app has others."""
        known = self._known()
        has_others = known is None or len(order.async_names) < len(known)
        return order.concurrency > 1 and order.sync_budget <= 0 and has_others

    def ended(self, name: str, move: Move) -> None:
        """A task of this name has run, or its arguments could not be read and it was left. If that happens again and
        again, the name is left for a while: a newer worker may be able to read them."""
        if isinstance(move, Leave):
            self._could_not_read(name)
        elif self._unreadable and isinstance(move, Complete):
            self._unreadable.pop(name, None)
            self._paused.pop(name, None)

    def _could_not_read(self, name: str) -> None:
        self.has_met_any = True
        self._unreadable[name] += 1
        rounds = self._unreadable[name] // UNREADABLE_IN_A_ROW
        if rounds and self._unreadable[name] % UNREADABLE_IN_A_ROW == 0:
            self._paused[name] = self._clock() + LEAVE_S[min(rounds, len(LEAVE_S)) - 1]
            self._stay()
            self._owes_bell = True

    def _ours(self) -> str:
        """The names of which tasks are claimed now, as a bound array."""
        known = self._known() or ()
        if self._paused:
            return self._unpaused(known)
        if self._bound is None or self._bound[0] is not known:
            self._bound = (known, texts(sorted(known)))
        return self._bound[1]

    def _unpaused(self, names: Iterable[str]) -> str:
        now = self._clock()
        self._paused = {name: until for name, until in self._paused.items() if until > now}
        return texts(sorted(name for name in names if name not in self._paused))

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
        self.has_met_any = True
        if now >= self._until:
            self._names.clear()
            self._past_unknown.begin_anew()
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
            log.warning("more than %s are unknown here; no more of them are logged", counted(MOST_LINES, "name"))


class Walk:
    """How far a worker has come along the line of each queue and priority, past tasks that it does not take."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.places: dict[Level, Place] = {}
        self.is_under_way = False  # there may be more behind what was seen
        self.is_at_front = False  # the last look was the first of a walk
        self._is_searching = False  # that look has passed all that it saw in one of the lines
        self._searched_s = 0.0
        self._began: float | None = None

    def begin_anew(self) -> None:
        self.places.clear()
        self.is_under_way = self._is_searching = False
        self._searched_s, self._began = 0.0, None

    def pause_s(self) -> float:
        """In how many seconds to begin again from the front."""
        if self._began is None:
            return 0.0
        pause_s = max(SHORTEST_WALK_PAUSE_S, WALK_FACTOR * self._searched_s)
        return max(0.0, self._began + self._searched_s + pause_s - self._clock())

    async def look(self, conn: Connection, queues: Sequence[str], names: str) -> list[Stretch]:
        """The next part of each line, and go past what stands before the first task of these names."""
        began = self._clock()
        self.is_at_front = self._began is None or (not self._is_searching and not self.pause_s())
        if self.is_at_front:
            self.begin_anew()
            self._began = began
        found = await store.look(conn, queues, names, self.places)
        self.places |= {one.level: one.passed for one in found if one.passed is not None}
        self.is_under_way = any(one.is_cut for one in found)
        self._is_searching = any(one.is_cut and one.first is None for one in found)
        if self._is_searching or self.is_at_front:
            self._searched_s += self._clock() - began
        return found

    def parts(self, found: Sequence[Stretch]) -> tuple[tuple[Level, Place, Place], ...]:
        """From the first task of these names on, as far as was seen."""
        return tuple(
            (one.level, self.places.get(one.level, BEGIN), one.last if one.is_cut else END)
            for one in found
            if one.first is not None
        )

    def missed(self, line: Line, rows: Sequence[tasks.Claimed]) -> dict[Level, Place]:
        """The parts of which none of these rows came, and that have an end."""
        taken = {(row.queue_name, row.priority) for row in rows}
        missed = {level: until for level, _, until in line.parts if until != END and level not in taken}
        has_come_on = self._is_searching or len(missed) < sum(until != END for _, _, until in line.parts)
        self.is_under_way = self.is_under_way and has_come_on
        return missed

    def go_on(self, missed: dict[Level, Place], queues: Collection[str]) -> None:
        """Pass these parts in these queues."""
        passed = {level: until for level, until in missed.items() if level[0] in queues}
        self.places |= passed
        self.is_under_way = self.is_under_way or bool(passed)


class Overtaking:
    """Async tasks overtake sync ones for which no child is idle (W-30a). Among the tasks that a claim reads, the claim
    sees to that itself; this is for those behind so many sync tasks that it does not come to them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.walk = Walk(clock)
        self.is_on = False
        self._since: float | None = None  # no child has been idle
        self._look_at = 0.0

    @property
    def is_under_way(self) -> bool:
        return self.is_on and self._since is not None

    @property
    def is_sync_turn(self) -> bool:
        """Whether async tasks let the sync ones go first now."""
        return self.is_on and self._since is not None and (self._clock() - self._since) // TURN_S % 2 == 1

    def pause_s(self) -> float | None:
        """Until the end of a turn in which nothing is overtaken."""
        if self._since is None or not self.is_sync_turn:
            return None
        return TURN_S - (self._clock() - self._since) % TURN_S

    def rest(self) -> None:
        """There is a place for a sync task, so nothing has to be overtaken."""
        self._since = None

    async def look(
        self, conn: Connection, order: tasks.ClaimOrder, names: str, *, is_needed: bool
    ) -> list[Stretch] | None:
        """The next part of the lines, for a claim of tasks with these names; None: an ordinary claim will do."""
        now = self._clock()
        if not (self.is_on or is_needed or now >= self._look_at):
            return None
        if self._since is None:
            self._since = now
        if self.is_sync_turn:
            return None
        found = await self.walk.look(conn, order.queues, names)
        if self.walk.is_at_front:
            self.is_on = is_needed or are_out_of_reach(order, found)
        if self.is_on:
            return found
        self.walk.begin_anew()
        self._since, self._look_at = None, now + SHORTEST_WALK_PAUSE_S
        return None


def are_out_of_reach(order: tasks.ClaimOrder, found: Iterable[Stretch]) -> bool:
    """Whether a claim that reads the first tasks of each queue, whatever their names, may miss those that this look was
    for: in one of the queues, as many others as it reads stand in front."""
    takes = dict(zip(order.queues, order.takes, strict=True))
    before: Counter[str] = Counter()
    reached: set[str] = set()
    for one in sorted(found):  # by priority in each queue
        if one.queue in reached:
            continue
        if one.first is None and one.is_cut:
            return True
        if one.first is not None:
            reached.add(one.queue)
        before[one.queue] += one.size if one.first is None else one.first - 1
    return any(count >= takes[queue] for queue, count in before.items())


async def _with_room(conn: Connection, order: tasks.ClaimOrder, queues: set[str]) -> set[str]:
    """Those of these queues from which the caps let a claim take something."""
    asked = [name for name in order.counted if name == caps.ALL or name in queues]
    counts = await caps.in_flight(conn, asked, hard=order.hard)
    limits = dict(zip(order.queues, order.caps, strict=True)) | {caps.ALL: order.cluster_cap}

    def has_room(name: str) -> bool:
        cap = limits[name]
        free = 0 if cap is None else cap - counts[name]
        return cap is None or max(min(order.strict, free), free // 2) > 0

    return {name for name in queues if has_room(name)} if has_room(caps.ALL) else set()
