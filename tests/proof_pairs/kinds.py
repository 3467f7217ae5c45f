"""What an operation is: a function of the store, called with random arguments over the rows at hand."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

from psycopg import AsyncConnection

from tests.proof_pairs.choices import Choices
from tests.proof_pairs.rows import Start

Arguments: TypeAlias = dict[str, Any]
Run: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
Names: TypeAlias = Callable[[Start, Arguments], set[str]]


PRUNER = "lock of the only pruner"
SWEEPER = "lock of the only sweeper"
SCHEDULERS = {name: f"lock of the schedule {name}" for name in ("nightly", "hourly")}
LEFT_TO_ANOTHER = "somebody else does it"


@dataclass(frozen=True)
class Kind:
    """One operation: `run(conn, **arguments)` with arguments of `draws`."""

    name: str
    run: Run
    draws: Callable[[Choices, Start], Arguments] = lambda pick, start: {}
    names: Names = lambda start, arguments: set()  # the rows it can lock: task ids, words, others by their table
    uses: tuple[
        Callable[..., Any], ...
    ] = ()  # the functions of the store that `run` is made of, if it is not one itself
    skips: bool = False  # it leaves out what is locked
    leaves_out: Callable[[str], bool] = lambda name: True  # of that, these; for the others it waits
    waits: bool = True  # it may wait for a row
    counts: bool = False  # it holds the claim lock
    reads: bool = False  # it tells how rows stand without locking them
    statements: int = 1
    in_bulk: Callable[[Arguments], bool] = lambda arguments: False  # its order of locks rests on the session's settings

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return self.uses or (self.run,)


@dataclass(frozen=True, repr=False)
class Operation:
    """A kind with its arguments; run any number of times, it does the same."""

    kind: Kind
    arguments: Arguments

    def __repr__(self) -> str:
        return f"{self.kind.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"

    async def run(self, conn: AsyncConnection[Any]) -> Any:
        return await self.kind.run(conn, **self.arguments)

    @property
    def in_bulk(self) -> bool:
        return self.kind.in_bulk(self.arguments)

    def names(self, start: Start) -> set[str]:
        return self.kind.names(start, self.arguments)


def word(topic: str, holder: str) -> str:
    """The name of a row of `horsies_waiting`."""
    return f"{topic} of {holder}"


def rows_in(*statuses: str) -> Names:
    """It may lock any task in these states."""
    return lambda start, arguments: {row.id for row in start.tasks if row.status in statuses}
