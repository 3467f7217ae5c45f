"""What an example consists of: rows, operations, and plays, each of which is one way to run them at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from horsies.core.db.connections import BY_INDEX, IN_BULK
from tests.proof_pairs.kinds import Operation
from tests.proof_pairs.rows import Start

# How sessions may plan; who locks several rows takes them in id order all the same. The worker's own two come first.
PERSONAS = (
    BY_INDEX,
    IN_BULK,
    "",
    "-c enable_nestloop=off -c enable_mergejoin=off -c plan_cache_mode=force_generic_plan",
    "-c enable_hashjoin=off -c enable_nestloop=off -c plan_cache_mode=force_custom_plan",
    "-c enable_indexscan=off -c enable_bitmapscan=off -c enable_indexonlyscan=off",
)
ANY_PERSONA = range(len(PERSONAS))
THE_WORKERS = (1, 0)


class Ending(Enum):
    """How an operation's transaction ends."""

    OWN = "as the function does it"
    COMMIT = "held open, then committed"
    ROLLBACK = "held open, then rolled back"
    LOST = "held open, then the connection is lost"

    @property
    def is_held(self) -> bool:
        return self is not Ending.OWN

    @property
    def counts(self) -> bool:
        return self in (Ending.OWN, Ending.COMMIT)


class Pause(NamedTuple):
    """Where an operation stands still until it is let go: at the n-th reading of the clock, or before a statement."""

    reading: int = 0
    statement: int = 0


class Role(NamedTuple):
    """How one operation runs in a play."""

    ending: Ending = Ending.OWN
    pause: Pause = Pause()
    persona: int = 0


@dataclass(frozen=True)
class Play:
    """One interleaving: the roles, and whose turn it is to take its next step: start, be let go, end."""

    roles: tuple[Role, ...]
    turns: tuple[int, ...]
    together: bool = False
    obstacle: str | None = None  # a row that a bystander keeps locked until its turn comes


@dataclass(frozen=True)
class Example:
    """Rows, operations, what the clock of each says, and some ways to run them at the same time."""

    start: Start
    operations: tuple[Operation, ...]
    clocks: tuple[float, ...]
    plays: tuple[Play, ...]


class Failure(NamedTuple):
    """An operation that raised."""

    sqlstate: str | None
    kind: str


class Run(NamedTuple):
    """What came of an example: what each function returned, and the database after it."""

    answers: list[Any]
    outcome: dict[str, Any]


class Way(NamedTuple):
    """A serial order. Some operations find rows locked and leave them out, some are undone at once, and what some have
    written is not seen by those that follow."""

    order: tuple[int, ...]
    undone: frozenset[int] = frozenset()
    unseen: frozenset[int] = frozenset()
    left_out: frozenset[tuple[int, str]] = frozenset()

    def left_out_by(self, place: int) -> frozenset[str]:
        return frozenset(name for by, name in self.left_out if by == place)

    def leaving_out(self, place: int, name: str) -> Way:
        return self._replace(left_out=self.left_out | {(place, name)})
