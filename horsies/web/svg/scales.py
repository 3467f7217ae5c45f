"""Numbers and times for people, and the steps of an axis."""

import math
from datetime import UTC, datetime
from typing import Literal, TypeAlias

Unit: TypeAlias = Literal["count", "seconds", "bytes", "percent"]

_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0
_BASES = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_STEPS = (
    *(base * 10.0**power for power in range(-6, 0) for base in (1, 2, 5)),
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(_MINUTE * many for many in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * many for many in (1, 2, 3, 6, 12)),
    *(_DAY * many for many in (1, 2, 7, 14, 28, 91, 365)),
)


def human(value: float, unit: Unit = "count") -> str:
    """`1.2k`, `3 ms`, `4 min`, `1.5 GB`, `12 %`."""
    if not math.isfinite(value):
        return "–"
    if unit == "seconds":
        return human_seconds(value)
    if unit == "percent":
        return f"{_short(value)} %"
    size, steps = (1024.0, ("B", "kB", "MB", "GB", "TB")) if unit == "bytes" else (1000.0, ("", "k", "M", "G", "T"))
    left, place = abs(value), 0
    while left >= size * 0.9995 and place < len(steps) - 1:
        left, place = left / size, place + 1
    space = " " if unit == "bytes" else ""
    return f"{'-' if value < 0 and left else ''}{_short(left)}{space}{steps[place]}"


def human_seconds(value: float) -> str:
    """How long something took, in one unit: `0.4 ms`, `1.2 s`, `4 min`, `3 d`."""
    if value < 0:
        return f"-{human_seconds(-value)}"
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (1.0, "s")):
        if value >= size * 0.9995:
            return f"{_short(value / size)} {unit}"
    return f"{_short(value * 1000)} ms" if value else "0 s"


def _short(value: float) -> str:
    """Two or three digits."""
    if abs(value) >= 1e6:
        return f"{value:.0e}"
    if abs(value) >= 9.95:
        return f"{value:.0f}"
    written = f"{value:.1f}" if abs(value) >= 0.995 else f"{value:.2g}"
    return written.removesuffix(".0") if "e" not in written else f"{value:.0g}"


def elapsed(value: float) -> str:
    """A time on an axis, in two units if one is not exact: `1 min 30 s`."""
    whole = round(value)
    if value < _MINUTE or abs(value - whole) > 1e-6:
        return human_seconds(value) if value < 10 or abs(value - whole) < 1e-6 else f"{value:g} s"
    for size, unit, small, smaller in ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min"), (_MINUTE, "min", 1, "s")):
        if whole >= size:
            rest = int(whole % size // small)
            return f"{int(whole // size)} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def ticks(span: float, most: int = 8) -> list[float]:
    """The marks of an axis of so many seconds, from 0 on: round numbers, at most `most` of them besides 0."""
    if not math.isfinite(span) or span <= 0:
        return [0.0]
    step = next((one for one in _STEPS if span / one <= most), None)
    if step is None:
        step = _DAY * 365 * math.ceil(span / (_DAY * 365 * most))
    return [step * place for place in range(int(span / step + 1e-9) + 1)]


def top_of(value: float, unit: Unit = "count") -> float:
    """A round number that is not less than the value: the upper end of an axis."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    if unit == "seconds":
        return next((step for step in _STEPS if value <= step), value)
    size = 1024.0 ** math.floor(math.log(value, 1024)) if unit == "bytes" and value >= 1024 else 1.0
    power = size * 10.0 ** math.floor(math.log10(value / size))
    return next((base * power for base in _BASES if value <= base * power * 1.000001), value)


def seconds_between(start: datetime, end: datetime) -> float:
    """The seconds from one time to another. A time without a zone is one in UTC."""
    return (in_utc(end) - in_utc(start)).total_seconds()


def in_utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
