"""Bars and charts made of block characters: they need neither colour nor a mouse, and are as wide as there is room.

A chart is a row of columns. Points in time are laid out over them (`over_time`): a column shows the last point up to
its end, as long as that is not older than points usually are; where nothing is known, the column is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from math import isfinite
from statistics import median

from horsies.tui.lines import Line, Tone, line, number

EIGHTHS = " ▁▂▃▄▅▆▇█"
FULL, EMPTY = "█", "░"
HELD = 2.5  # a point holds for so many of the usual distances between two points
LABEL = 11  # cells in front of a chart


def bar(fraction: float, width: int) -> str:
    """`██████░░░░`. Something that is more than nothing has at least one full cell."""
    fraction = min(1.0, max(0.0, fraction))
    full = round(fraction * width)
    if fraction > 0:
        full = max(1, full)
    return FULL * full + EMPTY * (width - full)


def share(count: float, most: float, width: int) -> str:
    """A bar without its empty part, for comparing numbers below each other."""
    return "" if count <= 0 or most <= 0 else FULL * max(1, round(count / most * width))


def columns_of(values: Sequence[float | None], height: int, top: float) -> list[str]:
    """The rows of a chart, the highest first. A value that is known and small is still seen."""
    rows = []
    for level in range(height - 1, -1, -1):
        rows.append("".join(_block(value, level, height, top) for value in values))
    return rows


def _block(value: float | None, level: int, height: int, top: float) -> str:
    if value is None:
        return " "
    eighths = 0 if top <= 0 else round(min(1.0, max(0.0, value) / top) * 8 * height)
    return EIGHTHS[min(8, max(1 if level == 0 else 0, eighths - 8 * level))]


def over_time(
    points: Sequence[tuple[datetime, float | None]], end: datetime, window: timedelta, width: int
) -> list[float | None]:
    """The values of so many columns, the last of which ends now."""
    known = sorted((moment, value) for moment, value in points if value is not None and isfinite(value))
    held = _usual_distance([moment for moment, _ in known], window / max(1, width)) * HELD
    found: list[float | None] = []
    last = 0
    for column in range(1, width + 1):
        until = end - window * ((width - column) / width)
        while last < len(known) and known[last][0] <= until:
            last += 1
        is_held = last > 0 and until - known[last - 1][0] <= held
        found.append(known[last - 1][1] if is_held else None)
    return found


def _usual_distance(moments: Sequence[datetime], least: timedelta) -> timedelta:
    if len(moments) < 2:
        return least
    usual = median((after - before).total_seconds() for before, after in pairwise(moments))
    return max(least, timedelta(seconds=usual))


def chart(
    title: str,
    values: Sequence[float | None],
    *,
    height: int = 3,
    top: float | None = None,
    unit: str = "",
    tone: Tone = "busy",
) -> list[Line]:
    """A chart with its title, its scale and its newest value on the left."""
    known = [value for value in values if value is not None]
    highest = max(known, default=0.0)
    scale = max(highest, 1.0) if top is None else max(top, highest)
    labels = [title, f"to {_scaled(scale)}{unit}", *[""] * height][:height]
    if height > 2:
        labels[-1] = "no values" if not known else f"now {_scaled(known[-1])}{unit}"
    elif height == 2:
        labels[1] = "no values" if not known else f"{_scaled(known[-1])}{unit}"
    rows = columns_of(values, height, scale)
    return [line((f"{label[:LABEL]:<{LABEL}}", "dim"), (row, tone)) for label, row in zip(labels, rows, strict=True)]


def _scaled(value: float) -> str:
    return number(round(value)) if value >= 10 or value == int(value) else f"{value:.1f}"


def axis(window: str, width: int) -> Line:
    """The line below charts: how far back they go."""
    start = f"-{window}"
    return line((" " * LABEL + start + " " * max(1, width - len(start) - 3) + "now", "dim"))
