"""The picture of a soak: everything over time, the long transaction shaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure

from benchmarks.soak_report import Sample

Curve = tuple[str, Callable[[Sample], float | None]]

PANELS: Sequence[tuple[str, Sequence[Curve]]] = (
    ("tasks/s", (("done", lambda s: s.throughput),)),
    ("ms", (("due to start, p99", lambda s: s.wait_p99_ms), ("p50", lambda s: s.wait_p50_ms))),
    ("ms", (("claim, p99", lambda s: s.claim_p99_ms), ("p50", lambda s: s.claim_p50_ms))),
    ("pages", (("read by one claim", lambda s: s.probe_pages),)),
    ("thousands", (("dead rows", lambda s: s.dead_rows / 1e3), ("not done yet", lambda s: s.backlog / 1e3))),
    (
        "MB",
        (
            ("table", lambda s: s.table_bytes / 1e6),
            ("all its indexes", lambda s: s.indexes_bytes / 1e6),
            ("index of waiting tasks", lambda s: s.pending_index_bytes / 1e6),
            ("attempts", lambda s: s.attempts_bytes / 1e6),
        ),
    ),
    (
        "bytes/row",
        (("table", lambda s: s.bytes_per_row), ("indexes", lambda s: s.index_bytes_per_row)),
    ),
)
COLOURS = ("#2a6fb0", "#d1495b", "#66a182", "#8d6a9f")


def draw(samples: Sequence[Sample], seconds: float, title: str, target: Path) -> None:
    picture = Figure(figsize=(10, 13), layout="constrained")
    picture.suptitle(fill(title, 130), fontsize=8)
    axes = picture.subplots(len(PANELS), 1, sharex=True)
    for axis, (unit, curves) in zip(axes, PANELS, strict=True):
        _panel(axis, samples, seconds, unit, curves)
    axes[-1].set_xlabel("seconds; shaded: a REPEATABLE READ transaction is open")
    picture.savefig(target, dpi=100, metadata={"Software": None})


def _panel(axis: Any, samples: Sequence[Sample], seconds: float, unit: str, curves: Sequence[Curve]) -> None:
    axis.axvspan(seconds / 3, 2 * seconds / 3, color="#f1e9d2", zorder=0)
    for colour, (name, value) in zip(COLOURS, curves, strict=False):
        points = [(sample.second, found) for sample in samples if (found := value(sample)) is not None]
        axis.plot([x for x, _ in points], [y for _, y in points], color=colour, linewidth=1, label=name)
    axis.set_ylabel(unit, fontsize=8)
    axis.set_ylim(bottom=0)
    axis.tick_params(labelsize=8)
    axis.grid(color="#e5e5e5", linewidth=0.6)
    axis.legend(loc="upper left", fontsize=8, frameon=False, ncols=len(curves))
