"""What a soak has found: samples, the three phases of its time, and whether anything drifted. Plain arithmetic.

Judged is the end against the beginning: the first part of the first phase is warming up, and in the last phase the
server is given half of the time to clear away what the long transaction had kept. Medians over samples, because a
neighbour's burst is not ours; each rule has a slack below which a ratio means nothing.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import NamedTuple

PHASES = ("before", "held", "after")
WARM_UP = 0.25  # of the first phase
RECOVERY = 0.5  # of the last one


@dataclass(frozen=True)
class Sample:
    """One look. Counts are totals, `throughput` and the percentiles are of the time since the look before."""

    second: float
    sent: int
    done: int
    throughput: float
    wait_p50_ms: float | None  # from due to started
    wait_p99_ms: float | None
    probe_ms: float  # the claim statement, explained and rolled back
    probe_pages: int
    live_rows: int
    dead_rows: int
    table_bytes: int
    indexes_bytes: int
    pending_index_bytes: int
    attempts_bytes: int
    waiting_dead_rows: int

    @property
    def backlog(self) -> int:
        return max(0, self.sent - self.done)

    @property
    def bytes_per_row(self) -> float | None:
        return self.table_bytes / self.sent if self.sent else None

    @property
    def index_bytes_per_row(self) -> float | None:
        return self.indexes_bytes / self.sent if self.sent else None


def phase_of(second: float, seconds: float) -> str:
    """The transaction is open in the middle third."""
    return PHASES[min(2, max(0, int(3 * second / seconds)))]


def judged(samples: Sequence[Sample], seconds: float) -> dict[str, list[Sample]]:
    """The samples of each phase that count."""
    third = seconds / 3
    spans = {
        "before": (WARM_UP * third, third),
        "held": (third, 2 * third),
        "after": ((2 + RECOVERY) * third, seconds + 1),
    }
    return {name: [s for s in samples if begin <= s.second < end] for name, (begin, end) in spans.items()}


class Rule(NamedTuple):
    """What may become of a figure: `worst` is the ratio after : before that is still no drift."""

    name: str
    unit: str
    of: Callable[[Sample], float | None]
    worst: float | None = None  # None: told, not judged
    slack: float = 0.0

    @property
    def title(self) -> str:
        return f"{self.name} ({self.unit})"

    def has_drifted(self, before: float, after: float) -> bool:
        if self.worst is None or abs(after - before) <= self.slack:
            return False
        return after < before * self.worst if self.worst < 1 else after > before * self.worst


# Milliseconds depend on what else the machine has to do, so a claim is judged by its time in the server and the pages
# that it reads. Vacuum leaves dead rows alone until there are about 2,000 and one in a hundred.
RULES = (
    Rule("throughput", "tasks/s", lambda s: s.throughput, 0.9),
    Rule("due to start, p99", "ms", lambda s: s.wait_p99_ms),
    Rule("claim, in the server", "ms", lambda s: s.probe_ms, 1.5, slack=1.0),
    Rule("claim, in the server", "pages", lambda s: s.probe_pages, 1.5, slack=50.0),
    Rule("dead rows", "rows", lambda s: s.dead_rows, 1.5, slack=5_000.0),
    Rule("not done yet", "tasks", lambda s: s.backlog, 2.0, slack=500.0),
    Rule("table", "bytes/row", lambda s: s.bytes_per_row),
    Rule("its indexes", "bytes/row", lambda s: s.index_bytes_per_row),
    Rule("table", "MB", lambda s: s.table_bytes / 1e6),
    Rule("its indexes", "MB", lambda s: s.indexes_bytes / 1e6),
    Rule("index of waiting tasks", "MB", lambda s: s.pending_index_bytes / 1e6),
)


class Line(NamedTuple):
    """One figure in the three phases."""

    rule: Rule
    before: float | None
    held: float | None
    after: float | None

    @property
    def ratio(self) -> float | None:
        return None if self.after is None or not self.before else self.after / self.before

    @property
    def has_drifted(self) -> bool:
        return self.before is not None and self.after is not None and self.rule.has_drifted(self.before, self.after)

    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        verdict = "" if self.rule.worst is None else ("DRIFT" if self.has_drifted else "steady")
        return (self.rule.title, *map(number, self[1:]), ratio, verdict)


def lines(samples: Sequence[Sample], seconds: float, rules: Sequence[Rule] = RULES) -> list[Line]:
    parts = judged(samples, seconds)
    return [Line(rule, *(_median(rule, parts[phase]) for phase in PHASES)) for rule in rules]


def verdict(found: Sequence[Line]) -> str:
    """The one sentence at the end."""
    drifted = [f"{line.rule.title} {line.ratio or 0:.2f}×" for line in found if line.has_drifted]
    unknown = [line.rule.title for line in found if line.rule.worst is not None and None in (line.before, line.after)]
    if unknown:
        return f"NOT KNOWN: too short for {', '.join(unknown)}"
    if drifted:
        return f"DRIFT after the long transaction ended, against before it began: {', '.join(drifted)}"
    return "NO DRIFT: after the long transaction ended, everything judged is as it was before it began"


def recovered_after(samples: Sequence[Sample], seconds: float, rule: Rule) -> float | None:
    """Seconds from the end of the transaction to the first sample that is no drift any more."""
    before = _median(rule, judged(samples, seconds)["before"])
    for sample in samples:
        value = rule.of(sample)
        if before is None or value is None or phase_of(sample.second, seconds) != "after":
            continue
        if not rule.has_drifted(before, value):
            return sample.second - 2 * seconds / 3
    return None


def as_csv(samples: Sequence[Sample], seconds: float) -> str:
    text = io.StringIO()
    names = [field.name for field in fields(Sample)]
    writer = csv.DictWriter(text, [*names, "phase", "backlog"], lineterminator="\n")
    writer.writeheader()
    for sample in samples:
        row = asdict(sample) | {"phase": phase_of(sample.second, seconds), "backlog": sample.backlog}
        writer.writerow({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()})
    return text.getvalue()


def number(value: float | None) -> str:
    """Three digits, however large."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _median(rule: Rule, samples: Sequence[Sample]) -> float | None:
    values = [value for sample in samples if (value := rule.of(sample)) is not None]
    return median(values) if values else None
