"""Is what came of an example what some serial order of its operations would have come to?"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

from tests.proof_pairs.arena import Actor, Arena
from tests.proof_pairs.kinds import LEFT_TO_ANOTHER, PRUNER, SCHEDULERS, SWEEPER, Operation, word
from tests.proof_pairs.operations import WORDS
from tests.proof_pairs.plays import Example, Failure, Play, Run, Way

Allowed: TypeAlias = dict[int, frozenset[str]]

SEES_BEATS = ("recover", "sweep", "prune_heartbeats")
FEW = 1  # plays of operations that do not care for their order
NODE = "node "  # before the name of a task: its node
MOST_TRIES = 400  # serial orders with and without rows left out, for one play; a few are enough

# Deadlock, lock timeout, cancelled statement: nothing of the kind may happen, in whatever order.
FORBIDDEN = {"40P01", "55P03", "57014"}


class Judge:
    """Checks examples; what serial orders come to is kept for all plays of an example."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._serial: dict[Way, Run] = {}
        self.counts: Counter[str] = Counter()

    async def check(self, example: Example) -> None:
        """Raise an AssertionError unless a serial order explains each of its plays."""
        self._serial.clear()
        self.counts.update(operation.kind.name for operation in example.operations)
        matters = await self._matters(example)
        self.counts.update({"examples": 1, "examples whose order matters": matters})
        for play in example.plays if matters else example.plays[:FEW]:
            way = await self._explain(example, play)
            waited = any("waits" in said for said in self._arena.trace)
            self.counts.update(
                {"plays": 1, "plays with a wait": waited, "plays with rows left out": bool(way.left_out)}
            )
            self.counts.update({"plays with beats unseen": bool(way.unseen)})

    async def _matters(self, example: Example) -> bool:
        """Whether it makes a difference who goes first: these are worth more tries."""
        order = tuple(range(len(example.operations)))
        return await self._one_by_one(example, Way(order)) != await self._one_by_one(example, Way(order[::-1]))

    async def _explain(self, example: Example, play: Play) -> Way:
        """The serial order that explains it."""
        run = await self._arena.together(example, play)
        trace, actors = list(self._arena.trace), self._arena.actors
        bad = [answer for answer in run.answers if isinstance(answer, Failure) and answer.sqlstate in FORBIDDEN]
        assert not bad, f"{bad}\n{_described(example, play, trace)}"
        ways = _ways(actors)
        tried: list[tuple[Way, Run]] = []
        for way in ways:
            if await self._is_explained_by(way, example, run, tried):
                return way
        orders = list(tried)
        allowed = _skippable(example, play, actors)
        if found := await self._with_rows_left_out(example, ways, run, allowed, tried):
            return found
        raise AssertionError(_report(example, play, trace, run, orders))

    async def _is_explained_by(self, way: Way, example: Example, run: Run, tried: list[tuple[Way, Run]]) -> bool:
        serial = await self._one_by_one(example, way)
        tried.append((way, serial))
        return serial == run or _word_by_word(example, run, [one for _, one in tried])

    async def _with_rows_left_out(
        self,
        example: Example,
        ways: list[Way],
        run: Run,
        allowed: Allowed,
        tried: list[tuple[Way, Run]],
    ) -> Way | None:
        """The way with rows left out that explains it, if there is one. A row to leave out is looked for first where
        the two outcomes differ, then elsewhere: it may have had its effect on others only."""
        busy = [
            (place, lock)
            for place, names in allowed.items()
            for lock in names & {PRUNER, SWEEPER, *SCHEDULERS.values()}
            if run.answers[place] == LEFT_TO_ANOTHER
        ]
        for place, lock in busy:
            ways = [way.leaving_out(place, lock) for way in ways]
            allowed = {**allowed, place: frozenset()}  # it has looked at no row
        likely = [_as_answered(way, example, run, allowed, of) for way in ways for of in ("", NODE)]
        likely += [guess for way in ways for guess in await self._where_they_differ(way, example, run, allowed)]
        waiting = [(0, place, way) for place, way in enumerate([*ways, *likely])]
        seen = set(ways)
        while waiting and len(tried) < MOST_TRIES:
            cost, _, way = heapq.heappop(waiting)
            if way.left_out and await self._is_explained_by(way, example, run, tried):
                return way
            serial = await self._one_by_one(example, way)
            differing = _differing(run, serial)
            for place, names in allowed.items():
                doubtful = differing | _answered_otherwise(run.answers[place], serial.answers[place])
                for name in names - way.left_out_by(place):
                    more = way.leaving_out(place, name)
                    if more not in seen:
                        seen.add(more)
                        heapq.heappush(waiting, (cost + (1 if name in doubtful else 4), len(seen), more))
        return None

    async def _where_they_differ(self, way: Way, example: Example, run: Run, allowed: Allowed) -> list[Way]:
        """The same with everything left out, by one operation, by which the outcomes differ: it may not say what it has
        moved."""
        differing = _differing(run, await self._one_by_one(example, way))
        guesses = []
        for place, names in allowed.items():
            guess = way
            for name in sorted(names & differing):
                guess = guess.leaving_out(place, name)
            guesses.append(guess)
        return guesses

    async def _one_by_one(self, example: Example, way: Way) -> Run:
        if way not in self._serial:
            self._serial[way] = await self._arena.one_by_one(example, way)
        return self._serial[way]


def _as_answered(way: Way, example: Example, run: Run, allowed: Allowed, of: str) -> Way:
    """The same with everything left out that an operation says it has not moved, of tasks or of their nodes: where many
    rows were locked at once, one after the other would take too long to find."""
    ids = {row.id for row in example.start.tasks}
    for place, names in allowed.items():
        moved = _told(run.answers[place])
        if moved is not None:
            for name in names & {of + task_id for task_id in ids - moved}:
                way = way.leaving_out(place, name)
    return way


def _ways(actors: list[Actor]) -> list[Way]:
    """The serial orders that agree with what ended before what began, the order of the ends first. Then the same with
    an operation that only reads, unseen by all that come later and would see it, if it overlaps them."""
    undone = frozenset(actor.place for actor in actors if not actor.role.ending.counts)
    places = sorted(range(len(actors)), key=lambda place: actors[place].ended)
    orders = [
        order
        for order in itertools.permutations(places)
        if all(actors[one].began < actors[other].ended for one, other in itertools.combinations(order, 2))
    ]
    ways = [Way(order, undone) for order in orders]
    for order in orders:
        for nth, place in enumerate(order[:-1]):
            overlaps = all(
                actors[place].ended > actors[other].began
                for other in order[nth + 1 :]
                if actors[other].operation.kind.name in SEES_BEATS
            )
            if actors[place].operation.kind.reads and overlaps and place not in undone:
                ways.append(Way(order, undone, frozenset({place})))
    return ways


def _word_by_word(example: Example, run: Run, serial: list[Run]) -> bool:
    """Words have nothing to do with each other: if several operations are about them, for each word its own order will
    do, while everything else agrees with one order."""

    def words(one: Run) -> dict[str, Any]:
        return {word(row["topic"], row["holder"]): row for row in one.outcome["horsies_waiting"]}

    def is_alike_elsewhere(one: Run) -> bool:
        return one._replace(outcome={**one.outcome, "horsies_waiting": run.outcome["horsies_waiting"]}) == run

    if sum(operation.kind.name in WORDS for operation in example.operations) < 2:
        return False
    ours, others = words(run), [words(one) for one in serial]
    names = set(ours).union(*others)
    return any(map(is_alike_elsewhere, serial)) and all(
        any(ours.get(name) == other.get(name) for other in others) for name in names
    )


def _differing(run: Run, serial: Run) -> set[str]:
    """The tasks, words and workers that are not alike after both."""

    def rows(one: Run) -> list[tuple[str, Any]]:
        tasks = [(row["id"], row) for row in one.outcome["horsies_tasks"]]
        workers = [(f"worker {row['worker_id']}", row) for row in one.outcome["horsies_workers"]]
        workers += [(f"schedule {row['schedule_name']}", row) for row in one.outcome["horsies_schedule_state"]]
        return tasks + workers + [(word(row["topic"], row["holder"]), row) for row in one.outcome["horsies_waiting"]]

    ours, theirs = rows(run), rows(serial)
    return {name for name, row in ours if (name, row) not in theirs} | {
        name for name, row in theirs if (name, row) not in ours
    }


def _answered_otherwise(ours: Any, theirs: Any) -> set[str]:
    """The tasks by which two answers differ, as far as they tell."""
    one, other = _told(ours), _told(theirs)
    return set() if one is None or other is None else one ^ other


def _told(answer: Any) -> set[str] | None:
    """The tasks that an answer names; None if it names none because it never does."""
    if isinstance(answer, tuple) and answer and all(isinstance(part, set | list) for part in answer):
        return set().union(*(_told(part) or set() for part in answer))
    if isinstance(answer, set | list):  # of ids, or of claimed rows
        return {getattr(one, "id", one) for one in answer}
    return None


def _skippable(example: Example, play: Play, actors: list[Actor]) -> Allowed:
    """For each operation that skips, what it could have found locked: rows of those whose transaction was open while it
    ran, and the obstacle."""
    named = {name for operation in example.operations for name in operation.names(example.start)}

    def reach(operation: Operation) -> set[str]:
        # Among three, one may have made a row what the other looks for.
        return named if operation.kind.skips and len(actors) > 2 else operation.names(example.start)

    found = {}
    for me in actors:
        if not me.operation.kind.skips:
            continue
        held = {play.obstacle} if play.obstacle else set()
        for other in actors:
            overlaps = other.began < me.ended and me.began < other.ended
            if other is not me and overlaps and not _take_turns(me.operation, other.operation):
                held |= reach(other.operation)
            if other is not me and overlaps and other.operation.kind.name == "heartbeat":
                # Of the few it takes at once one may be found to live at the second look: the next pass has more.
                is_bounded = me.operation.arguments.get("most", len(example.start.tasks)) < len(example.start.tasks)
                held |= reach(me.operation) if me.operation.kind.name == "recover" and is_bounded else set()
        found[me.place] = frozenset(filter(me.operation.kind.leaves_out, reach(me.operation) & held))
    return found


def _take_turns(one: Operation, other: Operation) -> bool:
    """Whether a claim lock keeps these two apart: both count the tasks of the same queue."""
    if not (one.kind.counts and other.kind.counts):
        return False
    return not set(one.arguments["order"].counted).isdisjoint(other.arguments["order"].counted)


def _report(example: Example, play: Play, trace: list[str], run: Run, tried: list[tuple[Way, Run]]) -> str:
    lines = ["no serial order explains it", _described(example, play, trace), f"answers: {run.answers}"]
    for way, serial in tried:
        lines.append(f"in the order {way.order} the answers are {serial.answers}, and the rows differ by:")
        lines += _differences(run.outcome, serial.outcome)
    return "\n".join(lines)


def _described(example: Example, play: Play, trace: list[str]) -> str:
    lines = [f"  row {row}" for row in example.start.tasks]
    for place, role in enumerate(play.roles):
        lines.append(f"  {place}: {example.operations[place]} at {example.clocks[place]} {role}")
    return "\n".join([*lines, f"  barrier: {play.together}; obstacle: {play.obstacle}; {'; '.join(trace)}"])


def _differences(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[str]:
    for table in ours:
        for row in ours[table]:
            if row not in theirs[table]:
                yield f"    {table} has {_short(row)}"
        for row in theirs[table]:
            if row not in ours[table]:
                yield f"    {table} should have {_short(row)}"


def _short(row: Any) -> Any:
    return {name: value for name, value in row.items() if value is not None} if isinstance(row, dict) else row
