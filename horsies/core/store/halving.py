"""A batch of which the database may refuse one item: that one is found, and the others are not kept back by it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def by_halves(
    items: Sequence[T],
    act: Callable[[Sequence[T]], Awaitable[R]],
    *,
    is_refusal: Callable[[Exception], bool],
    give_up: Callable[[T, Exception], None],
) -> list[R]:
    """What `act` has returned: for all the items at once or, if it must be, for ever smaller parts, in their order.

    `is_refusal` tells whether one item may be at fault: then its part is halved, and an item that is alone goes to
    `give_up`. Any other exception ends it all and is raised; what was done before that stays done."""
    done: list[R] = []
    parts = [items] if items else []
    while parts:
        part = parts.pop()
        try:
            done.append(await act(part))
        except Exception as problem:
            if not is_refusal(problem):
                raise
            if len(part) > 1:
                parts += reversed(halves(part))
            else:
                give_up(part[0], problem)
    return done


def halves(items: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    middle = len(items) // 2
    return items[:middle], items[middle:]
