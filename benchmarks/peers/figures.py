"""What the samples say: medians, spreads, percentiles, ratios to ours, and the tables for terminal and page. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from benchmarks.peers.catalog import OURS, Answer, Contender, Traits

NOTHING = "–"
MARK: Mapping[Answer, str] = {"value": "", "polled value": " (polled)", "status": " (status only)", "none": ""}


class Begin(NamedTuple):
    """One start of a worker: seconds and seconds of CPU to its first finished task, seconds of the import of its
    library in another process, and the memory of its processes in 10^6 bytes."""

    first_s: float
    cpu_s: float
    import_s: float
    pss_mb: float


@dataclass
class Samples:
    """What each round of one contender brought, by its number: tasks per second, and latencies in seconds."""

    drain: dict[int, float] = field(default_factory=dict)
    one_by_one: dict[int, float] = field(default_factory=dict)
    bulk: dict[int, float] = field(default_factory=dict)
    starts: dict[int, list[float]] = field(default_factory=dict)
    ends: dict[int, list[float]] = field(default_factory=dict)
    begin: dict[int, Begin] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """The median of the rounds with the lowest and the highest, and the median ratio to ours in the same round."""

    value: float
    low: float
    high: float
    ratio: float | None = None


@dataclass(frozen=True)
class Latency:
    """Milliseconds over all rounds; `low` and `high` are the p50 of the best and the worst round."""

    p50: float
    p99: float
    low: float
    high: float
    ratio: float | None = None


@dataclass(frozen=True)
class Line:
    """One contender's figures. What was not measured, or does not exist, is None."""

    key: str
    title: str
    settings: str
    tasks: int
    answer: Answer
    traits: Traits
    drain: Figure | None
    one_by_one: Figure | None
    bulk: Figure | None
    start: Latency | None
    end: Latency | None
    begin: tuple[Figure | None, ...]


def lines(
    contenders: Sequence[Contender],
    samples: Mapping[str, Samples],
    settings: Mapping[str, str],
    tasks: Mapping[str, int],
) -> list[Line]:
    """One for each contender that was measured, in their order."""
    ours = samples.get(OURS, Samples())
    return [
        line(one, samples[one.key], ours, settings[one.key], tasks[one.key]) for one in contenders if one.key in samples
    ]


def line(contender: Contender, found: Samples, ours: Samples, settings: str, tasks: int) -> Line:
    return Line(
        key=contender.key,
        title=contender.title,
        settings=settings,
        tasks=tasks,
        answer=contender.answer,
        traits=contender.traits,
        drain=figure(found.drain, ours.drain),
        one_by_one=figure(found.one_by_one, ours.one_by_one),
        bulk=figure(found.bulk, ours.bulk),
        start=latency(found.starts, ours.starts),
        end=latency(found.ends, ours.ends),
        begin=begins(found.begin, ours.begin),
    )


def begins(found: Mapping[int, Begin], ours: Mapping[int, Begin]) -> tuple[Figure | None, ...]:
    """One figure for each field of a start."""
    split = [[{n: one[nth] for n, one in some.items()} for some in (found, ours)] for nth in range(len(Begin._fields))]
    return tuple(figure(values, others) for values, others in split)


def figure(values: Mapping[int, float], ours: Mapping[int, float]) -> Figure | None:
    if not values:
        return None
    found = list(values.values())
    return Figure(statistics.median(found), min(found), max(found), ratio(values, ours))


def latency(rounds: Mapping[int, Sequence[float]], ours: Mapping[int, Sequence[float]]) -> Latency | None:
    """From seconds. Rounds without a value (no results) make no figure."""
    middles, against = middles_of(rounds), middles_of(ours)
    if not middles:
        return None
    together = [value * 1000 for values in rounds.values() for value in values]
    low, high = min(middles.values()), max(middles.values())
    return Latency(percentile(together, 50), percentile(together, 99), low, high, ratio(middles, against))


def middles_of(rounds: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """The p50 of each round in milliseconds."""
    return {number: percentile(values, 50) * 1000 for number, values in rounds.items() if values}


def ratio(values: Mapping[int, float], ours: Mapping[int, float]) -> float | None:
    """Round by round, because what was measured side by side shares its minute; then the median."""
    both = [value / ours[number] for number, value in values.items() if ours.get(number)]
    return statistics.median(both) if both else None


def percentile(values: Sequence[float], percent: float) -> float:
    """By linear interpolation between the nearest ranks."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def rate_text(found: Figure | None) -> str:
    """Such as `7,241 (6,900–7,400)`."""
    return NOTHING if found is None else f"{found.value:,.0f} ({found.low:,.0f}–{found.high:,.0f})"


def ratio_text(found: Figure | Latency | None) -> str:
    """Theirs over ours, two significant digits below ten."""
    if found is None or found.ratio is None:
        return NOTHING
    return f"{found.ratio:.1f}" if found.ratio >= 10 else f"{found.ratio:.2g}"


def latency_text(found: Latency | None) -> str:
    """Such as `2.4 / 5.1`."""
    return NOTHING if found is None else f"{found.p50:.1f} / {found.p99:.1f}"


RATES = ("", "drain, tasks/s", "× ours", "send one by one", "× ours", "send in bulk", "× ours")
LATENCIES = ("", "send to start, ms: p50 / p99", "× ours", "send to result, ms: p50 / p99", "× ours")


STARTS = (
    "", "first task, s", "× ours", "CPU, s", "× ours", "import, s", "× ours", "memory, MB", "× ours",
)  # fmt: skip
DIGITS = (2, 2, 2, 0)


def starts(found: Sequence[Line]) -> list[list[str]]:
    """The rows below `STARTS`."""
    return [
        [line.title, *(text for one, digits in zip(line.begin, DIGITS, strict=True)
                       for text in (start_text(one, digits), ratio_text(one)))]
        for line in found
        if any(line.begin)
    ]  # fmt: skip


def start_text(found: Figure | None, digits: int) -> str:
    """Such as `0.61 (0.58–0.70)`."""
    if found is None:
        return NOTHING
    return f"{found.value:.{digits}f} ({found.low:.{digits}f}–{found.high:.{digits}f})"


def rates(found: Sequence[Line]) -> list[list[str]]:
    """The rows below `RATES`."""
    return [
        [
            line.title,
            *(text for one in (line.drain, line.one_by_one, line.bulk) for text in (rate_text(one), ratio_text(one))),
        ]
        for line in found
    ]


def latencies(found: Sequence[Line]) -> list[list[str]]:
    """The rows below `LATENCIES`."""
    return [
        [
            line.title,
            latency_text(line.start),
            ratio_text(line.start),
            latency_text(line.end) + (MARK[line.answer] if line.end else ""),
            ratio_text(line.end),
        ]
        for line in found
        if line.start
    ]


def page(
    found: Sequence[Line], versions: Mapping[str, str], facts: Mapping[str, str], notes: Sequence[str], chart: str
) -> str:
    """What stands between the markers of the page."""
    parts = [f"![Drain rate, send rate and latency of each queue]({chart})", ""]
    parts += [", ".join(f"{name} {value}" for name, value in facts.items()), ""]
    parts += [*table(RATES, rates(found)), "", *table(LATENCIES, latencies(found)), ""]
    parts += [*table(STARTS, starts(found)), ""]
    parts += ["Settings, and the number of tasks drained in each round:", ""]
    parts += table(("", "tasks", "settings"), [[line.title, f"{line.tasks:,}", line.settings] for line in found])
    parts += ["", "What each does, and does not do:", ""]
    parts += table(("", *(one.name for one in fields(Traits))), traits(found))
    parts += ["", "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + "."]
    parts += ["", *(f"- {note}" for note in notes)] if notes else []
    return "\n".join(parts)


def traits(found: Sequence[Line]) -> list[list[str]]:
    """One row for each system: its second way to run has the same ones."""
    seen: dict[Traits, str] = {}
    for line in found:
        seen.setdefault(line.traits, line.title)
    return [[title, *(asdict(one).values())] for one, title in seen.items()]


def table(headings: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """As Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *body)]


def as_json(found: Sequence[Line]) -> list[dict[str, Any]]:
    return [asdict(line) for line in found]
