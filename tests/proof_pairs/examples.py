"""Random examples: rows, two or three operations over them, and an interleaving."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from tests.proof_pairs.choices import SIZE, Choices
from tests.proof_pairs.kinds import Operation
from tests.proof_pairs.operations import THEMES, operation
from tests.proof_pairs.plays import ANY_PERSONA, THE_WORKERS, Ending, Example, Pause, Play, Role
from tests.proof_pairs.rows import Start, starts

OFTEN = (
    *(("running", "claimed", "waiting", "workflows") * 4),
    *("sent", "sent", "ended", "words", "words", "workers", "all", "all"),
)
PLAYS = 8
ENDINGS = (Ending.OWN, Ending.OWN, Ending.COMMIT, Ending.COMMIT, Ending.ROLLBACK, Ending.LOST)


READINGS = [Pause(reading=n) for n in (1, 1, 2, 2, 3, 4, 6)]  # the first may happen while a statement is planned
BETWEEN = [Pause(statement=n) for n in (2, 3)] * 3
# Three steps for each of two, two for each of three, whose last ones come in the end anyway; the highest number is the
# obstacle's.
TURNS = {
    2: sorted(set(itertools.permutations([0, 0, 0, 1, 1, 1, 2]))),
    3: sorted(set(itertools.permutations([0, 0, 1, 1, 2, 2, 3]))),
}


def examples(actors: int) -> st.SearchStrategy[Example]:
    return st.binary(min_size=SIZE, max_size=SIZE).map(lambda data: example(Choices(data), actors))


def example(pick: Choices, actors: int) -> Example:
    statuses, kinds = THEMES[pick.of(OFTEN)]
    start = starts(pick, statuses)
    chosen = tuple(operation(pick, start, kinds) for _ in range(actors))
    clocks = tuple(pick.of((0, 1)) for _ in range(actors))
    return Example(start, chosen, clocks, tuple(play(pick, start, chosen) for _ in range(PLAYS)))


def play(pick: Choices, start: Start, operations: tuple[Operation, ...]) -> Play:
    roles = tuple(role(pick, operation) for operation in operations)
    obstacle = pick.of([None, None, *sorted({name for one in operations for name in one.names(start)})])
    return Play(roles, pick.of(TURNS[len(operations)]), pick.of((False, False, True)), obstacle)


def role(pick: Choices, operation: Operation) -> Role:
    pauses = [Pause(), *READINGS, *(BETWEEN if operation.kind.statements > 1 else ())]
    persona = pick.of(THE_WORKERS if operation.in_bulk else ANY_PERSONA)
    return Role(pick.of(ENDINGS), pick.of(pauses), persona)
