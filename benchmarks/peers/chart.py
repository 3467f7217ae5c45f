"""The bar chart for the page: drain, enqueue and latency side by side, ours in its own colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.peers.catalog import OURS
from benchmarks.peers.figures import MARK, Line

OUR_COLOUR, THEIR_COLOUR = "#2a6fb0", "#b8bec6"
Bars = list[tuple[str, str, float]]


def draw(found: Sequence[Line], target: Path) -> None:
    """One picture of four panels; a contender is left out of a panel that has no figure for it."""
    drains = [(one.key, one.title, one.drain.value) for one in found if one.drain]
    sends = [(one.key, one.title, one.one_by_one.value) for one in found if one.one_by_one]
    starts = [(one.key, one.title, one.start.p50) for one in found if one.start]
    ends = [(one.key, one.title + MARK[one.answer], one.end.p50) for one in found if one.end]
    panels = [
        ("drain, tasks/s", "{:,.0f}", drains),
        ("send one by one, tasks/s", "{:,.0f}", sends),
        ("send to start, ms, p50 (less is better)", "{:.1f}", starts),
        ("send to result, ms, p50 (less is better)", "{:.1f}", ends),
    ]
    picture = Figure(figsize=(11, 6.2), layout="constrained")
    for axis, (title, text, bars) in zip(picture.subplots(2, 2).flat, panels, strict=True):
        _panel(axis, title, text, bars)
    picture.savefig(target, dpi=110, metadata={"Software": None})


def _panel(axis: Any, title: str, text: str, bars: Bars) -> None:
    names = [title for _, title, _ in bars]
    values = [value for _, _, value in bars]
    colours = [OUR_COLOUR if key.partition("_")[0] == OURS else THEIR_COLOUR for key, _, _ in bars]
    drawn = axis.barh(names, values, color=colours, height=0.65)
    axis.bar_label(drawn, [text.format(value) for value in values], padding=4, fontsize=9)
    axis.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axis.invert_yaxis()
    axis.margins(x=0.18)
    axis.tick_params(axis="y", length=0, labelsize=9)
    axis.set_xticks([])
    for side in ("top", "right", "left", "bottom"):
        axis.spines[side].set_visible(False)
