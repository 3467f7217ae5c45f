"""What a task says while it runs: how far it has come (P-50), and what it logs (P-51a), with the settings of the
latter.

These are plain values. A child collects them (`core/child/notes.py`), its worker writes them (`core/worker/notes.py`),
and handles, queries and commands read them (`core/store/notes.py`).
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from numbers import Real
from typing import Any, Final

from pydantic import Field, field_validator

from horsies.core.models.base import ConfigModel

LONGEST_MESSAGE: Final = 500  # characters
LONGEST_LINE: Final = 16_384
_WHOLE: Final = 2**53  # whole numbers up to this are exact
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class TaskLogs(ConfigModel):
    """That what tasks log is kept with them, and how much of it. What they log may contain secrets: whoever may read
    tasks can read it."""

    level: str = Field(default="INFO", description="the lowest level that is kept")
    max_lines: int = Field(
        default=2_000, ge=10, le=100_000, description="most records of one attempt; the middle of more is dropped"
    )
    max_bytes: int = Field(
        default=1_048_576,
        ge=4_096,
        le=67_108_864,
        description="most bytes of one attempt; the middle of more is dropped",
    )
    keep_hours: int = Field(
        default=72, ge=1, le=87_600, description="how long records are kept; they also go with their task"
    )
    capture_stdout: bool = Field(default=False, description="keep what tasks print, too")

    @field_validator("level", mode="before")
    @classmethod
    def _level_is_one_of_logging(cls, level: Any) -> str:
        name = level.upper() if isinstance(level, str) else logging.getLevelName(level)
        if name not in _LEVELS:
            raise ValueError(f"must be one of {', '.join(_LEVELS)}")
        return str(name)


class Progress(tuple[float, float | None, str | None]):
    """Done, total and message as a task has given them, checked."""

    @classmethod
    def of(cls, done: Any, total: Any, message: Any) -> Progress:
        """`TypeError` or `ValueError` says what is wrong."""
        if message is not None and not isinstance(message, str):
            raise TypeError(f"progress: message must be a text, not {type(message).__name__}")
        return cls((_number("done", done), None if total is None else _number("total", total), _short(message)))


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"progress: {name} must be a number, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"progress: {name} must be a finite number and at least 0, not {value!r}")
    return number


def _short(text: str | None) -> str | None:
    """What can be stored, and is not too long: PostgreSQL stores no NUL, and UTF-8 has no lone surrogates."""
    if not text:
        return None
    text = text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 1]}…"
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How far a task has come in its present run, or in its last one. `rate` is `done` in a second, since the first
    progress of this run."""

    done: float
    total: float | None
    message: str | None
    attempt: int
    updated_at: datetime
    rate: float | None = None

    @property
    def fraction(self) -> float | None:
        """From 0 to 1; None if the total is not known."""
        if self.total is None:
            return None
        return max(0.0, min(1.0, self.done / self.total)) if self.total > 0 else 1.0

    @property
    def remaining(self) -> timedelta | None:
        """The time until the total is reached at this rate; None if it is not known."""
        if self.total is None or not self.rate:
            return None
        seconds = max(0.0, self.total - self.done) / self.rate
        return timedelta(seconds=seconds) if seconds < 10**9 else None


def progress_of(
    attempt: int,
    done: float,
    total: float | None,
    message: str | None,
    first_done: float,
    first_at: datetime,
    updated_at: datetime,
) -> TaskProgress:
    """What is stored, as a value."""
    rate = _rate(done - first_done, (updated_at - first_at).total_seconds())
    return TaskProgress(_whole(done), None if total is None else _whole(total), message, attempt, updated_at, rate)


def _rate(done: float, seconds: float) -> float | None:
    rate = done / seconds if seconds > 0 and done > 0 else math.inf
    return rate if math.isfinite(rate) else None  # a large progress in a short time has no rate that is a number


def _whole(number: float) -> float:
    """A whole number as such: it is shown and written as `3`, not as `3.0`."""
    return int(number) if number.is_integer() and abs(number) <= _WHOLE else number


@dataclass(frozen=True, slots=True)
class TaskLogLine:
    """One record that a task has logged. `number` counts from 1 in each run. `dropped` records are missing before it:
    the middle of a long log, or what could not be written."""

    attempt: int
    number: int
    time: datetime
    level: str
    logger: str
    text: str
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Up to where a log was read."""

    claim_seq: int = -1
    line: int = 0


def lines_of(rows: Iterable[tuple[int, int, int, str]], after: LogPlace) -> Iterator[tuple[LogPlace, TaskLogLine]]:
    """The lines of stored rows (claim, attempt, number of the first line, lines as JSON), each with its place. A row
    that cannot be read is passed by: its lines count as dropped."""
    for claim_seq, attempt, first, text in rows:
        for number, line in enumerate(_parsed(text), first):
            last = after.line if after.claim_seq == claim_seq else 0
            if number > last:
                after = LogPlace(claim_seq, number)
                yield after, TaskLogLine(attempt, number, *line, dropped=number - last - 1)


def _parsed(text: str) -> list[tuple[datetime, str, str, str]]:
    try:
        return [
            (datetime.fromtimestamp(float(time), UTC), str(level), str(logger), str(said))
            for time, level, logger, said in json.loads(text)
        ]
    except (ValueError, TypeError, OverflowError, OSError, RecursionError):
        return []
