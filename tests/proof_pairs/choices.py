"""Choices read off a string of bytes: one draw makes a whole example.

Hypothesis then has nothing to copy from one part of an example to another, which it likes to do and which would make
most operations twins; and it still shrinks, because a smaller byte is an earlier, simpler choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

SIZE = 800


class Choices:
    """Each call takes the next two bytes; when they are used up, the first option is chosen."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def of(self, options: Sequence[T]) -> T:
        two, self._at = self._data[self._at : self._at + 2], self._at + 2
        return options[int.from_bytes(two, "big") % len(options)]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        left, found = list(options), []
        while left:
            found.append(left.pop(self.of(range(len(left)))))
        return found

    def is_so(self) -> bool:
        return self.of((False, True))
