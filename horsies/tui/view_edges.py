"""The edges of the screen: the bar of tabs on top, the notice below it when the database is away, and the hints at the
bottom. Plain functions; all of them fit into any width.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from horsies.cli.output import duration
from horsies.core.db import hint_for
from horsies.core.models.monitoring.cluster import Alert
from horsies.tui.lines import Line, Span, cut, line, padded, short, width_of

SHORT = {"Dashboard": "Dash", "Workers": "Work", "Tasks": "Tasks", "Workflows": "Flows", "Maintenance": "Maint"}
MOST_NOTICE = 2  # lines
HINTS = (
    ("↑↓", "select"),
    ("Enter", "open"),
    ("/", "search"),
    ("?", "help"),
    ("r", "refresh"),
    ("y", "copy"),
    ("t", "theme"),
    ("q", "quit"),
)


def tab_bar(titles: Sequence[str], active: int, alerts: Sequence[Alert], now: datetime, width: int) -> Line:
    """The tabs, the active one in brackets; on the right how many alerts there are, and the time of the database."""
    right = [*_alert_count(alerts), Span(f"{now:%H:%M:%S}Z", "dim")]
    names = [
        list(titles),
        [SHORT.get(title, title) for title in titles],
        [title if place == active else "" for place, title in enumerate(titles)],
        [""] * len(titles),
    ]
    for shown in names:
        left = _tabs(shown, active)
        if width_of(left) + width_of(tuple(right)) + 2 <= width:
            return (*padded(left, width - width_of(tuple(right))), *right)
    return cut(_tabs(names[-1], active), width)


def _tabs(names: Sequence[str], active: int) -> Line:
    found: list[Span] = []
    for place, name in enumerate(names):
        text = f"{place + 1} {name}".rstrip()
        found.append(Span(f"[{text}]", "bold") if place == active else Span(f" {text} "))
    return tuple(found)


def _alert_count(alerts: Sequence[Alert]) -> list[Span]:
    if not alerts:
        return []
    tone = "bad" if any(alert.level == "bad" for alert in alerts) else "warn"
    return [Span(f"!{len(alerts)} ", tone)]  # type: ignore[arg-type]


def notice(trouble: tuple[str, float] | None, age_s: float | None, width: int) -> list[Line]:
    """Why nothing new is shown, for how long, and how old the values are; nothing if all is well."""
    if trouble is None:
        return []
    problem, seconds = trouble
    shown = "nothing is known yet" if age_s is None else f"values are {short(age_s)} old"
    first = line((f" No news from the database for {duration(seconds)}; {shown}; trying again ", "bad"))
    hint = hint_for(problem)
    second = line((" " + " ".join(problem.split()) + (f" ({hint})" if hint else ""), "bad"))
    return [cut(first, width), cut(second, width)][:MOST_NOTICE]


def hints(message: str | None, trail: Sequence[str], search: str, width: int) -> Line:
    """A message, if there is one to read; otherwise what keys do here."""
    if message is not None:
        return cut(line((f" {message}", "bold")), width)
    keys = [*([("Esc", "back")] if trail else [("Esc", f'forget "{search}"')] if search else []), *HINTS]
    found: list[Span] = []
    for key, meaning in keys:
        more = line((f" {key}", "bold"), (f" {meaning} ", "dim"))
        if width_of((*found, *more)) > width:
            break
        found += more
    return tuple(found)


def crumbs(tab: str, trail: Sequence[str], width: int) -> Line:
    """Where a detail is: `Tasks › task 0198…`."""
    return cut(line((" › ".join((tab, *trail)), "head")), width)
