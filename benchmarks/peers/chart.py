"""The bar chart for the page: drain, enqueue and latency side by side, ours in its own colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.peers.catalog import OURS
from benchmarks.peers.figures import MARK, Line

OUR_COLOUR, THEIR_COLOUR = "#2a6fb0", "#b8bec6"
PANELS = (
    ("drain", "drain, tasks/s", "{:,.0f}"),
    ("one_by_one", "send one by one, tasks/s", "{:,.0f}"),
    ("start", "send to start, ms, p50 (less is better)", "{:.1f}"),
    ("end", "send to result, ms, p50 (less is better)", "{:.1f}"),
)


def draw(found: Sequence[Line], target: Path) -> None:
    """One picture of four panels; a contender is left out of a panel that has no figure for it."""
    picture = Figure(figsize=(11, 6.2), layout="constrained")
    for axis, (key, title, text) in zip(picture.subplots(2, 2).flat, PANELS, strict=True):
        _panel(axis, key, title, text, [one for one in found if key in one.figures])
    picture.savefig(target, dpi=110, metadata={"Software": None})


def _panel(axis: Any, key: str, title: str, text: str, found: Sequence[Line]) -> None:
    names = [one.title + (MARK[one.answer] if key == "end" else "") for one in found]
    values = [one.figures[key].p50 for one in found]
    colours = [OUR_COLOUR if one.key.partition("_")[0] == OURS else THEIR_COLOUR for one in found]
    drawn = axis.barh(names, values, color=colours, height=0.65)
    axis.bar_label(drawn, [text.format(value) for value in values], padding=4, fontsize=9)
    axis.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axis.invert_yaxis()
    axis.margins(x=0.18)
    axis.tick_params(axis="y", length=0, labelsize=9)
    axis.set_xticks([])
    for side in ("top", "right", "left", "bottom"):
        axis.spines[side].set_visible(False)
