"""What was measured, beside what it has to reach: rows, verdicts, and their forms for a page and a program. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Sense = Literal["at least", "under", "at most"]


@dataclass(frozen=True)
class Bar:
    """What a figure has to reach."""

    limit: float
    sense: Sense = "at least"

    def holds(self, value: float) -> bool:
        match self.sense:
            case "at least":
                return value >= self.limit
            case "at most":
                return value <= self.limit
            case "under":
                return value < self.limit


@dataclass(frozen=True)
class Row:
    """One figure: the median of its runs. Without values it was not measured, and `note` says why."""

    key: str
    what: str
    unit: str
    values: tuple[float, ...] = ()
    bar: Bar | None = None
    note: str = ""

    @property
    def value(self) -> float | None:
        return statistics.median(self.values) if self.values else None

    @property
    def holds(self) -> bool | None:
        return None if self.bar is None or self.value is None else self.bar.holds(self.value)

    def figure(self) -> str:
        """The median, and the range if there were several runs."""
        if self.value is None:
            return "–"
        text = shown(self.value, self.unit)
        if len(self.values) > 1:
            text += f" ({number(min(self.values), self.unit)}–{number(max(self.values), self.unit)})"
        return text

    def cells(self) -> tuple[str, str, str, str]:
        """What, the figure with its note, the bar, and whether it holds."""
        figure = self.figure() + (f"; {self.note}" if self.note else "")
        bar = "" if self.bar is None else f"{self.bar.sense} {shown(self.bar.limit, self.unit)}"
        return self.what, figure, bar, {True: "yes", False: "NO", None: ""}[self.holds]

    def as_json(self) -> dict[str, Any]:
        bar = None if self.bar is None else {"limit": self.bar.limit, "sense": self.bar.sense}
        found = {"key": self.key, "what": self.what, "unit": self.unit, "value": self.value, "bar": bar}
        return {**found, "holds": self.holds, "runs": list(self.values), "note": self.note}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Row:
        bar = None if found["bar"] is None else Bar(found["bar"]["limit"], found["bar"]["sense"])
        return cls(found["key"], found["what"], found["unit"], tuple(found["runs"]), bar, found["note"])


HEADINGS = ("what", "figure", "bar", "holds")


@dataclass
class Report:
    """All rows of one run, and where it ran."""

    machine: Mapping[str, str]
    server: Mapping[str, str]
    rows: list[Row] = field(default_factory=list)

    def add(
        self, key: str, what: str, unit: str, values: Iterable[float], bar: Bar | None = None, note: str = ""
    ) -> None:
        self.rows.append(Row(key, what, unit, tuple(values), bar, note))

    def as_json(self) -> dict[str, Any]:
        return {
            "machine": dict(self.machine),
            "server": dict(self.server),
            "rows": [row.as_json() for row in self.rows],
        }

    def markdown(self) -> str:
        """For a page: the facts in two lines, then the table."""
        table = markdown_table(HEADINGS, [row.cells() for row in self.rows])
        return "\n".join([facts(self.machine), "", f"PostgreSQL {facts(self.server)}", "", *table])


def markdown_table(headings: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *body)]


def facts(found: Mapping[str, str]) -> str:
    return ", ".join(value if name == "version" else f"{name} {value}" for name, value in found.items())


def shown(value: float, unit: str) -> str:
    """The number with its unit; a ratio has none."""
    return f"{number(value, unit)} {unit}".rstrip()


def number(value: float, unit: str) -> str:
    """As many digits as mean something."""
    if unit in ("tasks/s", "nodes/s", "bytes"):
        return f"{value:,.0f}"
    if unit == "µs":
        return f"{value:.1f}" if value < 10 else f"{value:.0f}"
    if unit == "MB":
        return f"{value:.0f}"
    return f"{value:.2f}" if value % 1 and value < 1_000 else f"{value:,.0f}"


def ratios(values: Sequence[float], of: Sequence[float]) -> list[float]:
    """Run by run: what was measured side by side is compared, so that a slow minute hits both."""
    return [value / whole for value, whole in zip(values, of, strict=True)]


def percentiles(values: Sequence[float]) -> dict[int, float]:
    """By nearest rank: each is a value that was seen."""
    ranked = sorted(values)
    return {cut: ranked[max(0, math.ceil(len(ranked) * cut / 100) - 1)] for cut in (50, 95, 99)}


def replaced(page: str, text: str, mark: str) -> str:
    """The page with the text between its markers."""
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"the page has no {begin} … {end}")
    return f"{before}{begin}\n{text.strip()}\n{end}{after}"
