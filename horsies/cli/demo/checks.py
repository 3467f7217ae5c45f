"""Compare the rows of the demo with what was expected. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

# (status, error code, outcomes of the attempts in order, "+" where a retry followed)
End: TypeAlias = tuple[str, str | None, str]
# task name -> how its tasks ended -> how many of them
Ends: TypeAlias = Mapping[str, Mapping[End, int]]


class NotAsExpected(Exception):
    """The demo had an unexpected result."""


class Row(NamedTuple):
    """One line of `demo/outcomes.sql`."""

    task_name: str
    status: str
    error_code: str | None
    attempts: str
    tasks: int
    attempt_rows: int


def must_be(found: Any, wanted: Any, what: str) -> None:
    if found != wanted:
        raise NotAsExpected(f"{what} is {_short(found)}, not {_short(wanted)}")


def problems(expected: Ends, rows: Iterable[Row]) -> list[str]:
    """The differences between the rows and the expected tasks; empty if there are none."""
    found: dict[str, dict[End, int]] = {}
    for row in rows:
        found.setdefault(row.task_name, {})[(row.status, row.error_code, row.attempts)] = row.tasks
    return [
        f"{name}: expected {_ends(wanted)}, the database has {_ends(found.get(name, {}))}"
        for name, wanted in expected.items()
        if found.get(name, {}) != dict(wanted)
    ]


def _ends(ends: Mapping[End, int]) -> str:
    if not ends:
        return "no rows"
    return ", ".join(
        f"{count} x {status}{f' {code}' if code else ''} [{attempts}]"
        for (status, code, attempts), count in ends.items()
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
