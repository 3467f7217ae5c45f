"""Who shares the answer of a refresh, and how long a page waits for its next one (M-95)."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import PlainTextResponse, Response

from horsies.web.pacing import LONGEST_WAIT_S, SHARED_S, SHORTEST_WAIT_S, SharedAnswers, wait_after


class Kitchen:
    """Makes answers, and counts them."""

    def __init__(self) -> None:
        self.now = 100.0
        self.made = 0
        self.shared = SharedAnswers(lambda: self.now)

    async def make(self) -> Response:
        self.made += 1
        return PlainTextResponse(str(self.made))

    async def ask(self, key: str = "page", told_at: float = 0.0) -> str:
        return bytes((await self.shared.get(key, self.make, told_at=told_at)).body).decode()


async def test_m95_within_a_second_everybody_gets_the_same_answer() -> None:
    kitchen = Kitchen()
    assert await asyncio.gather(*(kitchen.ask() for _ in range(5))) == ["1"] * 5
    kitchen.now += SHARED_S / 2
    assert await kitchen.ask() == "1"
    assert await kitchen.ask("another page") == "2"
    kitchen.now += SHARED_S
    assert await kitchen.ask() == "3"


async def test_m95_an_answer_from_before_the_last_change_is_not_shared() -> None:
    """Whoever asks because of that change would not see it, and would not be told again."""
    kitchen = Kitchen()
    assert await kitchen.ask() == "1"
    told_at = kitchen.now + 0.1
    kitchen.now += 0.2
    assert await kitchen.ask(told_at=told_at) == "2"
    assert await kitchen.ask(told_at=told_at) == "2"


async def test_m95_a_failure_is_nobodys_answer() -> None:
    kitchen = Kitchen()

    async def fail() -> Response:
        raise LookupError

    with pytest.raises(LookupError):
        await kitchen.shared.get("page", fail)
    assert await kitchen.ask() == "1"


def test_m95_all_viewers_together_take_a_small_part_of_the_time() -> None:
    assert wait_after(0.001, 1) == SHORTEST_WAIT_S
    assert wait_after(0.05, 2) == pytest.approx(5.0)
    assert wait_after(0.05, 0) == pytest.approx(2.5)
    assert wait_after(10, 10) == LONGEST_WAIT_S
