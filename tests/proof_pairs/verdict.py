"""Is what came of an example what some serial order of its operations would have come to?"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, TypeAlias

from tests.proof_pairs.arena import Actor, Arena, Example, Failure, Play, Run

FEW = 1  # plays of operations that do not care for their order

LeftOut: TypeAlias = dict[int, frozenset[str]]
LeftOutKey: TypeAlias = frozenset[tuple[int, frozenset[str]]]

# Deadlock, lock timeout, cancelled statement: nothing of the kind may happen, in whatever order.
FORBIDDEN = {"40P01", "55P03", "57014"}


class Judge:
    """Checks examples; what serial orders come to is kept for all plays of an example."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._serial: dict[Any, Run] = {}
        self.counts: Counter[str] = Counter()

    async def check(self, example: Example) -> None:
        """Raise an AssertionError unless a serial order explains each of its plays."""
        self._serial.clear()
        self.counts.update(operation.kind for operation in example.operations)
        plays = example.plays if await self._matters(example) else example.plays[:FEW]
        self.counts.update({"examples": 1, "examples whose order matters": plays == example.plays})
        for play in plays:
            left_out = await self._explain(example, play)
            waited = any("waits" in said for said in self._arena.trace)
            self.counts.update({"plays": 1, "plays with a wait": waited, "plays with rows left out": left_out})

    async def _matters(self, example: Example) -> bool:
        """Whether it makes a difference who goes first: these are worth more tries."""
        order = tuple(range(len(example.operations)))
        forth, back = [await self._one_by_one(example, way, {}, frozenset()) for way in (order, order[::-1])]
        return forth != back

    async def _explain(self, example: Example, play: Play) -> bool:
        """Whether rows had to be left out to explain it."""
        run = await self._arena.together(example, play)
        trace, actors = list(self._arena.trace), self._arena.actors
        bad = [answer for answer in run.answers if isinstance(answer, Failure) and answer.sqlstate in FORBIDDEN]
        assert not bad, f"{bad}\n{_described(example, play, trace)}"
        undone = frozenset(place for place, role in enumerate(play.roles) if not role.ending.counts)
        tried: list[tuple[tuple[int, ...], Run]] = []
        for order in _orders(actors):
            serial = await self._one_by_one(example, order, {}, undone)
            if serial == run:
                return False
            tried.append((order, serial))
        if _word_by_word(example, run, [serial for _, serial in tried]):
            return False
        for order, serial in tried:
            if await self._with_rows_left_out(example, order, serial, run, undone):
                return True
        raise AssertionError(_report(example, play, trace, run, tried))

    async def _with_rows_left_out(
        self, example: Example, order: tuple[int, ...], serial: Run, run: Run, undone: frozenset[int]
    ) -> bool:
        """Whether rows that skipping statements left out explain it in this order. A row to leave out is looked for
        where the two outcomes differ: each is tried, until nothing differs or there is nothing left to try."""
        allowed = {
            place: _skippable(example, self._arena.actors, place) for place in order if example.operations[place].skips
        }
        waiting: deque[tuple[LeftOut, Run]] = deque([({}, serial)])
        seen: set[LeftOutKey] = set()
        while waiting:
            left_out, serial = waiting.popleft()
            differing = _differing(run, serial)
            for place, names in allowed.items():
                said = _answered_otherwise(run.answers[place], serial.answers[place])
                doubtful = names if said is None else names & (differing | said)
                for name in sorted(doubtful - left_out.get(place, frozenset())):
                    more = {**left_out, place: left_out.get(place, frozenset()) | {name}}
                    if _key(more) in seen:
                        continue
                    seen.add(_key(more))
                    other = await self._one_by_one(example, order, more, undone)
                    if other == run:
                        return True
                    waiting.append((more, other))
        return False

    async def _one_by_one(
        self, example: Example, order: tuple[int, ...], left_out: LeftOut, undone: frozenset[int]
    ) -> Run:
        key = (order, _key(left_out), undone)
        if key not in self._serial:
            self._serial[key] = await self._arena.one_by_one(example, order, left_out, undone)
        return self._serial[key]


def _key(left_out: LeftOut) -> LeftOutKey:
    return frozenset(left_out.items())


def _orders(actors: list[Actor]) -> list[tuple[int, ...]]:
    """The serial orders that agree with what ended before what began, the order of the ends first."""
    places = sorted(range(len(actors)), key=lambda place: actors[place].ended)
    return [
        order
        for order in itertools.permutations(places)
        if all(actors[one].began < actors[other].ended for one, other in itertools.combinations(order, 2))
    ]


def _word_by_word(example: Example, run: Run, serial: list[Run]) -> bool:
    """Words have nothing to do with each other: for each of them its own order will do."""
    if not all(operation.is_about_words for operation in example.operations):
        return False

    def words(one: Run, topic: str) -> list[Any]:
        return [row for row in one.outcome["horsies_waiting"] if row["topic"] == topic]

    topics = {row["topic"] for one in (run, *serial) for row in one.outcome["horsies_waiting"]}
    return all(any(words(run, topic) == words(one, topic) for one in serial) for topic in topics)


def _differing(run: Run, serial: Run) -> set[str]:
    """The tasks and words that are not alike after both."""

    def rows(one: Run) -> list[tuple[str, Any]]:
        tasks = [(row["id"], row) for row in one.outcome["horsies_tasks"]]
        return tasks + [(row["topic"], row) for row in one.outcome["horsies_waiting"]]

    ours, theirs = rows(run), rows(serial)
    return {name for name, row in ours if (name, row) not in theirs} | {
        name for name, row in theirs if (name, row) not in ours
    }


def _answered_otherwise(ours: Any, theirs: Any) -> set[str] | None:
    """The tasks by which two answers differ; None if the answers do not tell."""
    if ours == theirs:
        return set()
    if isinstance(ours, list) and isinstance(theirs, list):  # of claimed rows
        ours, theirs = {row.id for row in ours}, {row.id for row in theirs}
    if isinstance(ours, set) and isinstance(theirs, set):
        return ours ^ theirs or None
    return None


def _skippable(example: Example, actors: list[Actor], place: int) -> frozenset[str]:
    """What this operation could have found locked: rows of those whose transaction was open while it ran."""
    me = example.operations[place]
    named = {name for operation in example.operations for name in operation.names(example.start)}
    mine = named if len(actors) > 2 else me.names(example.start)  # a third may have made it one of mine
    found: set[str] = set()
    for other in actors:
        theirs = other.operation
        overlaps = other.began < actors[place].ended and actors[place].began < other.ended
        if other.place != place and overlaps and not (me.counts and theirs.counts):
            found |= mine & (named if theirs.skips and len(actors) > 2 else theirs.names(example.start))
    return frozenset(found)


def _report(example: Example, play: Play, trace: list[str], run: Run, tried: list[tuple[tuple[int, ...], Run]]) -> str:
    lines = ["no serial order explains it", _described(example, play, trace), f"answers: {run.answers}"]
    for order, serial in tried:
        lines.append(f"in the order {order} the answers are {serial.answers}, and the rows differ by:")
        lines += _differences(run.outcome, serial.outcome)
    return "\n".join(lines)


def _described(example: Example, play: Play, trace: list[str]) -> str:
    lines = [f"  row {row}" for row in example.start.tasks]
    for place, role in enumerate(play.roles):
        lines.append(f"  {place}: {example.operations[place]} at {example.clocks[place]} {role}")
    return "\n".join([*lines, f"  barrier: {play.together}; {'; '.join(trace)}"])


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
