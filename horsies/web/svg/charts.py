"""Small charts of the overview: an area, stacked bars and lines, over a window of time that ends at a given time.

Samples are pairs of a time and a value. A value that is None, or a minute that is missing, is a gap. A long window has
fewer columns than samples: a column of a line shows its highest value, and one of bars the sum. The description says
the facts in words: the latest, the highest and the lowest value.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from horsies.web.svg.markup import Svg, label, number, picture, tag, text, text_width
from horsies.web.svg.scales import Unit, human, human_seconds, in_utc, seconds_between, top_of

Sample: TypeAlias = tuple[datetime, float | None]

WIDTH, HEIGHT = 320.0, 118.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 8.0, 30.0, 18.0
SIZE = 10.0
TITLE_SIZE = 12.0
MOST_COLUMNS = 120
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class ChartWindow:
    """The time that a chart covers, up to `end`, and the time between two samples."""

    end: datetime
    length: timedelta = timedelta(hours=1)
    step: timedelta = MINUTE

    @property
    def merged(self) -> int:
        """How many samples become one column."""
        return max(1, math.ceil(self.length / max(self.step, timedelta(milliseconds=1)) / MOST_COLUMNS))

    @property
    def columns(self) -> int:
        return max(1, math.ceil(self.length / max(self.step, timedelta(milliseconds=1)) / self.merged))

    def column(self, time: datetime) -> int | None:
        """The column of a time, or None if it is outside."""
        before = seconds_between(time, self.end)
        width = self.step.total_seconds() * self.merged
        place = self.columns - 1 - math.floor(before / width) if width > 0 else -1
        return place if 0 <= place < self.columns else None


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """Samples with a name. `kind` is a part of its class: `value`, `completed`, `failed`, `p50`, `p95`, `p99`."""

    name: str
    kind: str
    samples: Sequence[Sample]


def area_svg(samples: Sequence[Sample], *, title: str, window: ChartWindow, unit: Unit = "count") -> Svg:
    """One value over time, as a line with its area."""
    series = [ChartSeries("", "value", samples)]
    return _chart(
        series, title, window, unit, lambda columns, top: [_area(columns[0], top), _line("value", columns[0], top)]
    )


def lines_svg(series: Sequence[ChartSeries], *, title: str, window: ChartWindow, unit: Unit = "seconds") -> Svg:
    """Several values over time, as percentiles are: a line each, with its name at its end."""

    def draw(columns: Sequence[Sequence[float | None]], top: float) -> list[Svg]:
        return [_line(one.kind, values, top) for one, values in zip(series, columns, strict=True)]

    return _chart(series, title, window, unit, draw, has_key=True)


def bars_svg(series: Sequence[ChartSeries], *, title: str, window: ChartWindow, unit: Unit = "count") -> Svg:
    """Counts over time, such as failed and completed tasks, as bars on top of each other; the first is the lowest."""

    def draw(columns: Sequence[Sequence[float | None]], top: float) -> list[Svg]:
        return [_stack(series, columns, at, top, window, unit) for at in range(window.columns)]

    return _chart(series, title, window, unit, draw, is_stacked=True, has_key=True)


def _chart(
    series: Sequence[ChartSeries],
    title: str,
    window: ChartWindow,
    unit: Unit,
    draw: Callable[[Sequence[Sequence[float | None]], float], list[Svg]],
    *,
    is_stacked: bool = False,
    has_key: bool = False,
) -> Svg:
    join = sum if is_stacked else max
    columns = [_columns(one.samples, window, join) for one in series]
    words = " ".join(_in_words(one, window, unit) for one in series)
    size = {"viewBox": f"0 0 {number(WIDTH)} {number(HEIGHT)}", "preserveAspectRatio": "xMidYMid meet"}
    frame = {"class": "chart", **size, "font-size": SIZE}
    name = label(title, {"class": "chart-title", "x": 8.0, "y": 11.0, "font-size": TITLE_SIZE}, 170, TITLE_SIZE)
    if all(value is None for values in columns for value in values):
        nothing = {"class": "no-data", "x": WIDTH / 2, "y": HEIGHT / 2 + 8, "text-anchor": "middle"}
        return picture(frame, title, "No data.", name, tag("text", nothing, text("no data")))
    top = top_of(_highest(columns, is_stacked=is_stacked), unit)
    if is_stacked and window.merged > 1:
        words += f" Each bar is the sum of {human_seconds(window.step.total_seconds() * window.merged)}."
    room = WIDTH - RIGHT - 20 - min(170.0, text_width(title, TITLE_SIZE))
    shown = _key(series, window, unit) if has_key else _latest(series[0], window, unit, room)
    return picture(frame, title, words, name, *shown, _axes(window, top, unit), *draw(columns, top))


def _columns(
    samples: Iterable[Sample], window: ChartWindow, join: Callable[[list[float]], float]
) -> list[float | None]:
    found: list[list[float]] = [[] for _ in range(window.columns)]
    for time, value in _known(samples):
        place = window.column(time)
        if place is not None:
            found[place].append(value)
    return [join(values) if values else None for values in found]


def _known(samples: Iterable[Sample]) -> list[tuple[datetime, float]]:
    """The samples that have a value, in the order of time."""
    kept = [(in_utc(time), float(value)) for time, value in samples if value is not None and math.isfinite(value)]
    return sorted(kept)


def _highest(columns: Sequence[Sequence[float | None]], *, is_stacked: bool) -> float:
    if is_stacked:
        return max(sum(value or 0.0 for value in stack) for stack in zip(*columns, strict=True))
    return max((value for values in columns for value in values if value is not None), default=0.0)


def _place(at: float, count: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * at / count


def _height(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(1.0, max(0.0, value / top))


def _runs(values: Sequence[float | None], top: float) -> list[list[tuple[float, float]]]:
    """The points of a line, as one list for each part without a gap."""
    found: list[list[tuple[float, float]]] = [[]]
    for at, value in enumerate(values):
        if value is not None:
            found[-1].append((_place(at + 0.5, len(values)), _height(value, top)))
        elif found[-1]:
            found.append([])
    return [run for run in found if run]


def _line(kind: str, values: Sequence[float | None], top: float) -> Svg:
    """A line; a single value between gaps is a short stroke, so it can be seen."""
    parts = []
    for run in _runs(values, top):
        (x, y), rest = run[0], run[1:]
        parts.append(f"M{number(x)} {number(y)}" + "".join(f"L{number(a)} {number(b)}" for a, b in rest))
        if not rest:
            parts.append(f"M{number(x - 1.5)} {number(y)}h3")
    return tag("path", {"class": f"line line-{_safe(kind)}", "d": "".join(parts)})


def _area(values: Sequence[float | None], top: float) -> Svg:
    floor = number(HEIGHT - BOTTOM)
    parts = [
        f"M{number(run[0][0])} {floor}" + "".join(f"L{number(x)} {number(y)}" for x, y in run) + f"V{floor}Z"
        for run in _runs(values, top)
    ]
    return tag("path", {"class": "area", "d": "".join(parts)})


def _stack(
    series: Sequence[ChartSeries],
    columns: Sequence[Sequence[float | None]],
    at: int,
    top: float,
    window: ChartWindow,
    unit: Unit,
) -> Svg:
    """The bars of one column, from the floor upwards, with the numbers as a tooltip."""
    count = window.columns
    left, right = _place(at, count), _place(at + 1, count)
    space = min(1.0, (right - left) * 0.2)
    parts: list[Svg] = []
    words: list[str] = []
    below = 0.0
    for one, values in zip(series, columns, strict=True):
        value = values[at]
        if value is None:
            continue
        words.append(f"{human(value, unit)} {one.name}")
        if value > 0:
            upper, lower = _height(below + value, top), _height(below, top)
            size = {"x": left + space / 2, "y": upper, "width": right - left - space, "height": max(1.0, lower - upper)}
            parts.append(tag("rect", {"class": f"part part-{_safe(one.kind)}", **size}))
            below += value
    if not parts:
        return Svg("")
    ago = human_seconds((count - 1 - at) * window.merged * window.step.total_seconds())
    tip = f"{', '.join(words)}, {ago} ago" if at < count - 1 else f"{', '.join(words)}, now"
    return tag("g", {}, tag("title", {}, text(tip)), *parts)


def _axes(window: ChartWindow, top: float, unit: Unit) -> Svg:
    floor = HEIGHT - BOTTOM
    lines = (
        f"M{number(LEFT)} {number(TOP)}H{number(WIDTH - RIGHT)}M{number(LEFT)} {number(floor)}H{number(WIDTH - RIGHT)}"
    )
    long_ago = f"{human_seconds(window.length.total_seconds())} ago"

    def word(words: str, x: float, y: float, anchor: str) -> Svg:
        return tag("text", {"class": "axis-label", "x": x, "y": y, "text-anchor": anchor}, text(words))

    return tag(
        "g",
        {"class": "axis"},
        tag("path", {"class": "grid", "d": lines}),
        word(human(top, unit), LEFT - 5, TOP + 4, "end"),
        word("0", LEFT - 5, floor + 3, "end"),
        word(long_ago, LEFT, HEIGHT - 5, "start"),
        word("now", WIDTH - RIGHT, HEIGHT - 5, "end"),
    )


def _latest(series: ChartSeries, window: ChartWindow, unit: Unit, room: float) -> list[Svg]:
    """The latest value, large, beside the title; a value that is old says so."""
    known = _inside(series, window)
    if not known:
        return []
    time, value = known[-1]
    age = seconds_between(time, window.end)
    words = human(value, unit) + (f" ({human_seconds(age)} ago)" if age > 3 * window.step.total_seconds() else "")
    spot = {"class": "latest", "x": WIDTH - RIGHT, "y": 12.0, "text-anchor": "end", "font-size": 13.0}
    return [label(words, spot, room, 13)]


def _key(series: Sequence[ChartSeries], window: ChartWindow, unit: Unit) -> list[Svg]:
    """The names of the series with their marks and latest values, from the right, below the title."""
    parts = []
    x = WIDTH - RIGHT
    for one in reversed(series):
        known = _inside(one, window)
        words = f"{one.name[:12]} {human(known[-1][1], unit) if known else '–'}"
        width = text_width(words, SIZE)
        x -= width
        parts.append(label(words, {"class": "key", "x": x, "y": 25.0}, width, SIZE))
        mark = {"class": f"mark mark-{_safe(one.kind)}", "x": x - 11, "y": 17.5, "width": 8.0, "height": 8.0, "rx": 1}
        parts.append(tag("rect", mark))
        x -= 18
    return parts


def _inside(series: ChartSeries, window: ChartWindow) -> list[tuple[datetime, float]]:
    return [(time, value) for time, value in _known(series.samples) if window.column(time) is not None]


def _in_words(series: ChartSeries, window: ChartWindow, unit: Unit) -> str:
    """`p95: latest 3 ms, highest 40 ms (12 min ago), lowest 1 ms (30 min ago).`"""
    known = _inside(series, window)
    name = f"{series.name[:80]}: " if series.name else ""
    if not known:
        return f"{name}no data."
    high, low = max(known, key=lambda one: one[1]), min(known, key=lambda one: one[1])

    def said(one: tuple[datetime, float]) -> str:
        age = seconds_between(one[0], window.end)
        when = "now" if age < window.step.total_seconds() else f"{human_seconds(age)} ago"
        return f"{human(one[1], unit)} ({when})"

    found = f"{name}latest {said(known[-1])}, highest {said(high)}, lowest {said(low)}."
    return found[0].upper() + found[1:]


def _safe(kind: str) -> str:
    """A part of a class name."""
    return "".join(letter for letter in kind[:20] if letter.isascii() and (letter.isalnum() or letter == "-"))
