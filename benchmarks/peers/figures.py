"""What the samples say: medians, spreads, percentiles, ratios to ours, and the tables for terminal and page. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from benchmarks.peers.catalog import OURS, Answer, Contender, Traits
from benchmarks.report import markdown_table, percentiles

NOTHING = "–"
MARK: Mapping[Answer, str] = {"value": "", "polled value": " (polled)", "status": " (status only)", "none": ""}
Rounds = Mapping[int, Sequence[float]]  # what was measured in each round, by its number


class Measure(NamedTuple):
    """One column. Of a latency the page gets p50 and p99, of everything else the median, the lowest and the highest."""

    key: str
    heading: str
    digits: int = 0
    is_latency: bool = False


TABLES = (
    (Measure("drain", "drain, tasks/s"), Measure("one_by_one", "send one by one"), Measure("bulk", "send in bulk")),
    (
        Measure("start", "send to start, ms: p50 / p99", 1, is_latency=True),
        Measure("end", "send to result, ms: p50 / p99", 1, is_latency=True),
    ),
    (
        Measure("first", "first task, s", 2),
        Measure("cpu", "CPU, s", 2),
        Measure("import", "import, s", 2),
        Measure("memory", "memory, MB"),
    ),
)


class Samples(defaultdict[str, dict[int, list[float]]]):
    """What each round of one contender brought, by the key of the measure and the number of the round."""

    def __init__(self) -> None:
        super().__init__(dict)


@dataclass(frozen=True)
class Figure:
    """Over all rounds; `low` and `high` are the medians of two rounds, `ratio` is that to ours."""

    p50: float
    p99: float
    low: float
    high: float
    ratio: float | None = None

    def text(self, measure: Measure) -> str:
        """Such as `7,241 (6,900–7,400)`, or `2.4 / 5.1`."""
        if measure.is_latency:
            return f"{self.p50:.{measure.digits}f} / {self.p99:.{measure.digits}f}"
        value, low, high = (f"{one:,.{measure.digits}f}" for one in (self.p50, self.low, self.high))
        return f"{value} ({low}–{high})"

    def ratio_text(self) -> str:
        """Theirs over ours, two significant digits below ten."""
        if self.ratio is None:
            return NOTHING
        return f"{self.ratio:.1f}" if self.ratio >= 10 else f"{self.ratio:.2g}"


@dataclass(frozen=True)
class Line:
    """One contender's figures. What was not measured, or does not exist, is not among them."""

    key: str
    title: str
    settings: str
    tasks: int
    answer: Answer
    traits: Traits
    figures: Mapping[str, Figure]


def line(contender: Contender, found: Samples, ours: Samples, settings: str, tasks: int) -> Line:
    figures = {key: one for key, rounds in found.items() if (one := figure(rounds, ours.get(key, {})))}
    return Line(contender.key, contender.title, settings, tasks, contender.answer, contender.traits, figures)


def lines(
    contenders: Sequence[Contender],
    samples: Mapping[str, Samples],
    settings: Mapping[str, str],
    tasks: Mapping[str, int],
) -> list[Line]:
    """One for each contender that was measured, in their order."""
    ours, measured = samples.get(OURS, Samples()), [one for one in contenders if one.key in samples]
    return [line(one, samples[one.key], ours, settings[one.key], tasks[one.key]) for one in measured]


def figure(rounds: Rounds, ours: Rounds) -> Figure | None:
    """Rounds without a value (no results) make no figure."""
    middles = {number: statistics.median(values) for number, values in rounds.items() if values}
    if not middles:
        return None
    against = {number: statistics.median(values) for number, values in ours.items() if values}
    together = [value for values in rounds.values() for value in values]
    p99 = percentiles(together)[99]
    return Figure(
        statistics.median(together), p99, min(middles.values()), max(middles.values()), ratio(middles, against)
    )


def ratio(values: Mapping[int, float], ours: Mapping[int, float]) -> float | None:
    """Round by round, because what was measured side by side shares its minute; then the median."""
    both = [value / ours[number] for number, value in values.items() if ours.get(number)]
    return statistics.median(both) if both else None


def headings(measures: Sequence[Measure]) -> list[str]:
    return ["", *(text for one in measures for text in (one.heading, "× ours"))]


def body(found: Sequence[Line], measures: Sequence[Measure]) -> list[list[str]]:
    """The rows of one table, of those who have a figure in it."""
    return [
        [line.title, *(text for measure in measures for text in _cells(line, measure))]
        for line in found
        if any(measure.key in line.figures for measure in measures)
    ]


def _cells(line: Line, measure: Measure) -> tuple[str, str]:
    one = line.figures.get(measure.key)
    if one is None:
        return NOTHING, NOTHING
    return one.text(measure) + (MARK[line.answer] if measure.key == "end" else ""), one.ratio_text()


def page(
    found: Sequence[Line], versions: Mapping[str, str], facts: Mapping[str, str], notes: Sequence[str], chart: str
) -> str:
    """What stands between the markers of the page."""
    parts = [f"![Drain rate, send rate and latency of each queue]({chart})", ""]
    parts += [", ".join(f"{name} {value}" for name, value in facts.items()), ""]
    for measures in TABLES:
        parts += [*markdown_table(headings(measures), body(found, measures)), ""]
    parts += ["Settings, and the number of tasks drained in each round:", ""]
    parts += markdown_table(("", "tasks", "settings"), [[one.title, f"{one.tasks:,}", one.settings] for one in found])
    parts += ["", "What each does, and does not do:", ""]
    parts += markdown_table(["", *(one.name for one in fields(Traits))], traits(found))
    parts += ["", "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + "."]
    parts += ["", *(f"- {note}" for note in notes)] if notes else []
    return "\n".join(parts)


def traits(found: Sequence[Line]) -> list[list[str]]:
    """One row for each system: its second way to run has the same ones."""
    seen: dict[Traits, str] = {}
    for one in found:
        seen.setdefault(one.traits, one.title)
    return [[title, *(asdict(one).values())] for one, title in seen.items()]


def as_json(found: Sequence[Line]) -> list[dict[str, Any]]:
    return [asdict(one) for one in found]
