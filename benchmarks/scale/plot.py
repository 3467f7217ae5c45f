"""The picture of scale: small panels, each how one cost grows with one thing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from benchmarks.figures import Curves

COLOURS = ("#2a6fb0", "#d1495b", "#66a182", "#8d6a9f", "#b8860b")


class Panel(NamedTuple):
    """What it shows: a title, what grows, the unit of the cost, and the curves by key and name."""

    title: str
    grows: str
    unit: str
    curves: Sequence[tuple[str, str]]
    bar: float | None = None  # of the last point; drawn as a dashed line
    is_steep: bool = False  # the cost spans powers of ten


PANELS: Sequence[Panel] = (
    Panel("a claim", "rows in the table", "ms", (("claim_ms", "claim of ten"),)),
    Panel(
        "queries",
        "rows in the table",
        "ms",
        (("list_ms", "list"), ("failed_ms", "list FAILED"), ("snapshot_ms", "snapshot"), ("slowest_ms", "slowest")),
        1_000,
        is_steep=True,
    ),
    Panel(
        "looks for one send",
        "idle workers",
        "for each send",
        (("claims_per_send", "claims"), ("statements_per_send", "all statements")),
    ),
    Panel("send to result", "idle workers", "ms, p50", (("result_ms", "one task at a time"),)),
    Panel(
        "many queues",
        "queues of one worker",
        "ms",
        (("queue_claim_ms", "claim"), ("queue_result_ms", "send to result, p50")),
    ),
    Panel("supervisor", "bytes of an argument", "MB at the peak", (("peak_mb", "`--processes 8`"),), 250),
    Panel("fan-out", "nodes of a workflow", "nodes/s", (("nodes_per_s", "one worker"),)),
)


def draw(curves: Curves, title: str, target: Path) -> None:
    """One picture; a panel whose curves were not measured says so."""
    picture = Figure(figsize=(14, 6.5), layout="constrained")
    picture.suptitle(title, fontsize=8)
    axes = list(picture.subplots(2, 4).flat)
    for axis, panel in zip(axes, PANELS, strict=False):
        _panel(axis, panel, curves)
    for axis in axes[len(PANELS) :]:
        axis.set_axis_off()
    picture.savefig(target, dpi=100, metadata={"Software": None})


def _panel(axis: Any, panel: Panel, curves: Curves) -> None:
    for colour, (key, name) in zip(COLOURS, panel.curves, strict=False):
        if points := sorted(curves.get(key, [])):
            axis.plot(
                [x for x, _ in points], [y for _, y in points], color=colour, linewidth=1.4, marker="o", markersize=3,
                label=name,
            )  # fmt: skip
    places = sorted({x for key, _ in panel.curves for x, _ in curves.get(key, [])})
    if not places:
        axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, ha="center", fontsize=8, color="#999999")
    elif panel.bar is not None:
        axis.axhline(panel.bar, color="#999999", linewidth=1, linestyle="--", label="bar")
    axis.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
    axis.set_xscale("log")
    if panel.is_steep:
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.set_xticks(places, [_short(x) for x in places])
    axis.set_xticks([], minor=True)
    axis.set_xlabel(panel.grows, fontsize=8)
    axis.set_ylabel(panel.unit, fontsize=8)
    axis.tick_params(labelsize=8)
    axis.grid(color="#e5e5e5", linewidth=0.6)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=7, frameon=False)


def _short(number: float) -> str:
    """1,000,000 as 1M."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{letter}"
    return f"{number:g}"
