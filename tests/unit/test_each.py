"""`each` runs all cases of a table and names those that fail."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from tests.each import each


def test_every_case_runs_and_those_that_fail_are_named() -> None:
    seen: list[tuple[int, str]] = []

    @each("number", [1, 2, 3])
    @each("letter", ["a", "b"])
    def some_test(tmp_path: object, number: int, letter: str) -> None:
        seen.append((number, letter))
        assert number != 2 or letter != "b"

    assert list(inspect.signature(some_test).parameters) == ["tmp_path"]
    with pytest.raises(AssertionError) as failed:
        some_test(tmp_path=None)
    assert len(seen) == 6
    assert failed.value.__notes__ == ["in the case of 'b'", "in the case of 2"]


def test_several_failures_are_told_together() -> None:
    @each(("left", "right"), [(1, 1), (1, 2), (2, 1)])
    async def some_test(left: int, right: int) -> None:
        assert left == right

    with pytest.raises(ExceptionGroup, match="2 cases failed") as failed:
        asyncio.run(some_test())  # type: ignore[call-arg]
    assert [one.__notes__ for one in failed.value.exceptions] == [["in the case of (1, 2)"], ["in the case of (2, 1)"]]
