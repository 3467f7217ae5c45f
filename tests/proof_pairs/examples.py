"""Random examples: rows, two or three operations over them, and an interleaving."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from horsies.core.brokers.connections import IN_BULK
from tests.proof_pairs.arena import ANY_PERSONA, PERSONAS, Ending, Example, Pause, Play, Role
from tests.proof_pairs.choices import SIZE, Choices
from tests.proof_pairs.operations import THEMES, Operation, operation
from tests.proof_pairs.rows import starts

OFTEN = ("waiting", "claimed", "running") * 3 + ("sent", "sent", "words", "workers", "all", "all")
PLAYS = 8
ENDINGS = (Ending.OWN, Ending.OWN, Ending.COMMIT, Ending.COMMIT, Ending.ROLLBACK, Ending.LOST)


READINGS = [Pause(reading=n) for n in (1, 1, 2, 2, 3, 4, 6)]  # the first may happen while a statement is planned
BETWEEN = [Pause(statement=n) for n in (2, 3)] * 3
TURNS = {n: sorted(set(itertools.permutations([place for place in range(n) for _ in range(3)]))) for n in (2,)}
TURNS[3] = sorted(set(itertools.permutations([0, 1, 2] * 2)))  # the last steps are taken in the end anyway


def examples(actors: int) -> st.SearchStrategy[Example]:
    return st.binary(min_size=SIZE, max_size=SIZE).map(lambda data: example(Choices(data), actors))


def example(pick: Choices, actors: int) -> Example:
    status, kinds = THEMES[pick.of(OFTEN)]
    start = starts(pick, status)
    chosen = tuple(operation(pick, start, kinds) for _ in range(actors))
    clocks = tuple(pick.of((0, 1)) for _ in range(actors))
    return Example(start, chosen, clocks, tuple(play(pick, chosen) for _ in range(PLAYS)))


def play(pick: Choices, operations: tuple[Operation, ...]) -> Play:
    roles = tuple(role(pick, operation) for operation in operations)
    return Play(roles, pick.of(TURNS[len(operations)]), pick.of((False, False, True)))


def role(pick: Choices, operation: Operation) -> Role:
    pauses = [Pause(), *READINGS, *(BETWEEN if operation.statements > 1 else ())]
    persona = PERSONAS.index(IN_BULK) if operation.in_bulk else pick.of(ANY_PERSONA)
    return Role(pick.of(ENDINGS), pick.of(pauses), persona)
