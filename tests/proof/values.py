"""What the model speaks in: instants without a clock, texts of which only a part is promised, requests and reports.

Nothing here knows the database. An instant is told relative to the step in which something happened; the step's real
time is learned later, from the database's own clock. All distances are either none or many minutes, so that the few
seconds a story takes never decide whether something has passed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, TypeAlias

Clock: TypeAlias = Mapping[int, tuple[datetime, datetime]]  # step → the database's clock before and after it


@dataclass(frozen=True, slots=True)
class When:
    """From `low` to `high` seconds after something that happened in `step`; told to the server only in step `late`, an
    instant reckoned back from there may be later by as long as that step took."""

    step: int
    low: float = 0.0
    high: float = 0.0
    late: int | None = None

    @property
    def is_past(self) -> bool:
        assert self.high <= 0 or self.low > 60, f"{self} may or may not have passed"
        return self.high <= 0

    def is_at_or_after(self, other: When) -> bool:
        assert self.high + 60 < other.low or self.low > other.high + 60, f"{self} may be before or after {other}"
        return self.low > other.high

    def matches(self, found: object, clock: Clock) -> bool:
        if not isinstance(found, datetime):
            return False
        start, end = clock[self.step]
        if self.late is not None and self.late != self.step:
            told_from, told_until = clock[self.late]
            end += told_until - told_from
        # A text and a float lose less than a microsecond on the way.
        return start + timedelta(seconds=self.low) <= found <= end + timedelta(seconds=self.high, microseconds=1)


@dataclass(frozen=True, slots=True)
class OneOf:
    """The rules leave open which of these it is."""

    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """A text for people that mentions all of these; without any, some text or none."""

    parts: tuple[str, ...]

    def matches(self, found: object) -> bool:
        return not self.parts or (isinstance(found, str) and all(part in found for part in self.parts))


@dataclass(frozen=True, slots=True)
class ErrorResult:
    """A stored result that is an error with this code, and with at least these data."""

    code: str
    data: tuple[tuple[str, object], ...] = ()

    def matches(self, found: object) -> bool:
        if not isinstance(found, str):
            return False
        error = json.loads(found)["err"]
        code, data = error["error_code"], error.get("data") or {}
        if isinstance(code, dict):  # how the codec writes a code of the library
            (code,) = code.values()
        return bool(code == self.code) and all(data.get(name) == value for name, value in self.data)


def agrees(expected: object, found: object, clock: Clock) -> bool:
    """Is this what the model said?"""
    match expected:
        case When():
            return expected.matches(found, clock)
        case OneOf(values):
            return any(agrees(value, found, clock) for value in values)
        case Names() | ErrorResult():
            return expected.matches(found)
        case _:
            return type(expected) is type(found) and expected == found


@dataclass(frozen=True, slots=True)
class Policy:
    """T-75: which codes are retried, and after how many seconds."""

    codes: tuple[str, ...]
    intervals: tuple[int, ...]
    max_retries: int
    is_exponential: bool = False
    jitter: bool = False

    def delay(self, retry: int) -> tuple[float, float]:
        """T-77: the least and the most seconds before retry number `retry`."""
        seconds = self.intervals[0] * 2 ** (retry - 1) if self.is_exponential else self.intervals[retry - 1]
        return (seconds * 0.75, seconds * 1.25) if self.jitter else (seconds, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What somebody wants to have done; shown by what is special about it."""

    task_name: str = "one"
    queue_name: str = "a"
    priority: int = 100
    args: str | None = "[]"
    flags: tuple[tuple[str, Any], ...] = ()
    policy: Policy | None = None
    delay: int | None = None
    deadline: float | None = None  # seconds from the call
    age: float = 0.0  # seconds that the call has been under way
    key: str | None = None

    def __repr__(self) -> str:
        special = [f for f in fields(self) if getattr(self, f.name) != f.default]
        return f"Wish({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in special)})"


@dataclass(frozen=True, slots=True)
class Request:
    """One send, as its caller made it in step `step`."""

    task_id: str
    step: int
    sha: str
    sent_at: datetime
    task_options: str | None
    wish: Wish

    @property
    def content(self) -> tuple[object, ...]:
        """What makes two requests equal (T-57); no arguments are no arguments, however they are written."""
        wish = self.wish
        return wish.queue_name, wish.priority, wish.args or "[]", self.task_options, wish.flags


@dataclass(frozen=True, slots=True)
class Hold:
    """The fence: who believes to hold which task by which claim."""

    owner: str
    task_id: str
    claim_seq: int


@dataclass(frozen=True, slots=True)
class Returned:
    """The code returned an ok result."""

    result: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The code ended in an error, or was stopped by its time limit; `result` is the text that is stored."""

    code: str | None
    result: object
    message: object


@dataclass(frozen=True, slots=True)
class Died:
    """The process died in the code. `delay`: its worker takes part in worker recovery, which runs it again (L-16)."""

    owner: str
    hostname: str
    pid: int
    delay: float | None = None


Report: TypeAlias = Returned | Failed | Died
