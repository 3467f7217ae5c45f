"""A batch in which something is refused: the refused are found, the others get through, in order."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horsies.core.db.failures import by_halves


class Database:
    """Takes numbers, refuses the batch if a bad one is in it, and breaks down at one that is fatal."""

    def __init__(self, bad: Collection[int], fatal: int | None = None) -> None:
        self._bad = bad
        self._fatal = fatal
        self.written: list[int] = []
        self.refused: list[int] = []
        self.tries = 0

    async def write(self, part: Sequence[int]) -> int:
        self.tries += 1
        if self._fatal in part:
            raise ConnectionError("gone")
        if any(number in self._bad for number in part):
            raise ValueError("bad")
        self.written += part
        return len(part)

    def give_up(self, number: int, problem: Exception) -> None:
        assert str(problem) == "bad"
        self.refused.append(number)

    async def take(self, numbers: Sequence[int]) -> list[int]:
        return await by_halves(numbers, self.write, is_refusal=_is_refusal, give_up=self.give_up)


def _is_refusal(problem: Exception) -> bool:
    return isinstance(problem, ValueError)


@given(st.sets(st.integers(0, 40)), st.integers(0, 40))
async def test_exactly_the_bad_ones_are_refused(bad: set[int], count: int) -> None:
    database = Database(bad)
    sizes = await database.take(range(count))
    assert database.written == [number for number in range(count) if number not in bad]
    assert database.refused == [number for number in range(count) if number in bad]
    assert sum(sizes) == len(database.written)


async def test_a_batch_without_a_bad_one_is_one_try_and_an_empty_one_is_none() -> None:
    database = Database(())
    assert await database.take(range(100)) == [100] and database.tries == 1
    assert await database.take([]) == [] and database.tries == 1


async def test_one_bad_one_costs_few_tries() -> None:
    database = Database((77,))
    await database.take(range(512))
    assert database.tries <= 2 * 9 + 1


async def test_another_exception_is_raised_at_once() -> None:
    database = Database((0,), fatal=3)
    with pytest.raises(ConnectionError):
        await database.take(range(4))
    assert database.tries == 1


async def test_what_was_written_and_refused_before_another_exception_stays_so() -> None:
    database = Database((0,))

    async def write(part: Sequence[int]) -> int:
        if list(part) == [2, 3]:
            raise ConnectionError("gone")
        return await database.write(part)

    with pytest.raises(ConnectionError):
        await by_halves(range(4), write, is_refusal=_is_refusal, give_up=database.give_up)
    assert (database.written, database.refused) == ([1], [0])
