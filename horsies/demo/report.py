"""Compares the rows of the demo with what was expected, and prints the final report: the table of states and attempts,
the figures, and a sentence for each scene. Pure, except for the printing.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

# Status, error code, and the outcomes of the attempts in order; "+" marks an attempt that was retried.
End: TypeAlias = tuple[str, str | None, str]

# The number of tasks by task name and by how they ended.
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


@dataclass(frozen=True)
class SceneResult:
    """The outcome of one scene."""

    sentence: str
    problems: list[str]


@dataclass(frozen=True)
class Figures:
    """What was measured during the demo."""

    sends_per_second: float
    tasks_per_second: float
    round_trips_ms: list[float]


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


def render(rows: Sequence[Row], figures: Figures | None, verdicts: Sequence[SceneResult]) -> RenderableType:
    parts: list[RenderableType] = [_states(rows)]
    if figures is not None:
        parts.append(_measured(figures))
    return Group(*parts, Text(), _sentences(verdicts), Text())


def print_report(
    console: Console, rows: Sequence[Row], figures: Figures | None, verdicts: Sequence[SceneResult]
) -> None:
    console.print()
    console.print(render(rows, figures, verdicts), soft_wrap=False)


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


def _states(rows: Sequence[Row]) -> Table:
    table = Table(title="How the tasks ended", title_justify="left", caption_justify="left")
    for name in ("task", "state", "error code", "attempts of each"):
        table.add_column(name, no_wrap=name != "attempts of each")
    table.add_column("tasks", justify="right")
    for row in rows:
        attempts = row.attempts.replace("+", ", then") or "none"
        table.add_row(row.task_name, row.status, row.error_code or "", attempts, f"{row.tasks:,}")
    table.add_section()
    attempts_in_all = sum(row.attempt_rows for row in rows)
    table.add_row("all", "", "", f"{attempts_in_all:,} attempts", f"{sum(row.tasks for row in rows):,}")
    return table


def _measured(figures: Figures) -> Table:
    table = Table(title="Measured on this machine, now", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("tasks sent", f"{figures.sends_per_second:,.0f} per second")
    table.add_row("small tasks run, first start to last end", f"{figures.tasks_per_second:,.0f} per second")
    if len(figures.round_trips_ms) > 1:
        cuts = statistics.quantiles(figures.round_trips_ms, n=100, method="inclusive")
        for percent in (50, 95, 99):
            table.add_row(f"a single task, from send to result, p{percent}", f"{cuts[percent - 1]:.1f} ms")
    return table


def _sentences(verdicts: Sequence[SceneResult]) -> Table:
    table = Table.grid(padding=(0, 2))
    for verdict in verdicts:
        mark = Text("NOT", "bold red") if verdict.problems else Text("ok", "bold green")
        table.add_row(mark, Text("\n".join([verdict.sentence, *(f"- {text}" for text in verdict.problems)])))
    return table
