"""How much of an answer an agent is told, and in which form (X-41). Pure.

An agent reads every character of an answer, and pays for it, so that an argument of a megabyte must not reach it: texts
and lists are cut, the answer as a whole too, and what was left out is said, with how to see it. Texts of rows are made
visible (`core/text.py`): the agent may print them on somebody's terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from itertools import islice
from typing import Any

from horsies.core.text import json_text, visible_lines

LONGEST_TEXT = 2_000  # characters, unless the agent asks for more
LONGEST_ASKED = 20_000
LONGEST_ANSWER = 60_000
LONGEST_KEY = 200
LONGEST_PATH = 200  # of what was left out; its end is kept
MOST_MEMBERS = 200  # of one list or object
MOST_REMARKS = 20
DEEPEST = 20


@dataclass(frozen=True, slots=True)
class BoundedAnswer:
    """An answer as JSON values, and what is not in it."""

    value: Any
    left_out: tuple[str, ...] = ()


def bounded(
    value: Any, *, longest: int = LONGEST_TEXT, redact: Callable[[str], str] = str, most: int = LONGEST_ANSWER
) -> BoundedAnswer:
    """The answer with texts of at most so many characters; shorter ones, if the whole would be longer than `most`."""
    for text, members in _steps(longest):
        cut = _Cut(text, members, redact)
        shown = cut.shown(value)
        if len(whole := json_text(shown)) <= most:
            return BoundedAnswer(shown, cut.remarks())
    about = f"the answer is the beginning of a JSON text of {len(whole):,} characters"
    return BoundedAnswer(whole[:most], (*cut.remarks(), about))


def _steps(longest: int) -> Iterator[tuple[int, int]]:
    """How long texts and lists may be, from generous to strict."""
    yield longest, MOST_MEMBERS
    for text in (longest // 4, longest // 16):
        yield max(100, text), MOST_MEMBERS
    for members in (MOST_MEMBERS // 4, MOST_MEMBERS // 20, 3):
        yield 100, members


@dataclass(slots=True)
class _Cut:
    """One walk through an answer."""

    longest: int
    members: int
    redact: Callable[[str], str]
    found: list[str] = field(default_factory=list)

    def shown(self, value: Any, path: str = "", level: int = 0) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, datetime):
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        if isinstance(value, Enum):
            return self.shown(value.value, path, level)
        if isinstance(value, str):
            return self._text(value, path)
        if level == DEEPEST:
            self._leave_out(path, "nested too deeply")
            return "…"
        if is_dataclass(value):
            value = {one.name: getattr(value, one.name) for one in fields(value)}
        if isinstance(value, Mapping):
            return self._object(value, path, level + 1)
        return self._list(value, path, level + 1)

    def remarks(self) -> tuple[str, ...]:
        """What was left out; of many things, the first ones."""
        more = len(self.found) - MOST_REMARKS
        return (*self.found[:MOST_REMARKS], *([f"and {more} more"] if more > 0 else []))

    def _leave_out(self, path: str, said: str) -> None:
        where = path if len(path) <= LONGEST_PATH else f"…{path[1 - LONGEST_PATH :]}"
        self.found.append(f"{where or 'answer'}: {said}")

    def _text(self, text: str, path: str) -> str:
        """Redacted before it is cut, so that no part of a secret remains."""
        text = self.redact(text)
        if len(text) > self.longest:
            self._leave_out(path, f"the first {self.longest:,} of {len(text):,} characters")
            text = f"{text[: self.longest]}…"
        return visible_lines(text)

    def _object(self, value: Mapping[Any, Any], path: str, level: int) -> dict[str, Any]:
        """Without what is None: an agent reads every field."""
        told = {name: one for name, one in value.items() if one is not None}
        if len(told) > self.members:
            self._leave_out(path, f"{self.members:,} of {len(told):,} fields")
        shown = {}
        for name, one in islice(told.items(), self.members):
            key = visible_lines(self.redact(str(name)))[:LONGEST_KEY]
            shown[key] = self.shown(one, f"{path}.{key}" if path else key, level)
        return shown

    def _list(self, value: Any, path: str, level: int) -> list[Any]:
        if len(value) > self.members:
            self._leave_out(path, f"the first {self.members:,} of {len(value):,}")
        return [self.shown(one, f"{path}[{place}]", level) for place, one in enumerate(value[: self.members])]
