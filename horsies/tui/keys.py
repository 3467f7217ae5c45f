"""The keys (M-81), by what they are for. The help shows them, and the application binds them."""

from __future__ import annotations

KEYS: dict[str, tuple[tuple[str, str], ...]] = {
    "Everywhere": (
        ("1 2 3 4 5", "the tabs: Dashboard, Workers, Tasks, Workflows, Maintenance"),
        ("↑ ↓", "select, or scroll where nothing can be selected; also k and j"),
        ("PgUp PgDn", "a screen up or down, at the end of a page the next page; also Home and End"),
        ("Enter", "open what is selected; → as well, and ← closes it"),
        ("/", "search on this tab; Enter searches, Esc forgets it. An id opens its task or workflow"),
        ("y", "copy what is selected as JSON, through the terminal (OSC 52), which must allow it"),
        ("r", "refresh now"),
        ("t", "theme: the terminal's own colours, dark, light"),
        ("?", "this help"),
        ("Esc", "close a detail, forget a search; otherwise quit"),
        ("q", "quit"),
    ),
    "Workers": (("[ ]", "shorter or longer window of the charts: 5m, 30m, 1h, 6h, 24h"),),
    "Tasks": (
        ("p c u o f", "show pending, claimed, running, completed, failed tasks; again: no longer"),
        ("x e", "the same for cancelled and expired tasks"),
        ("a", "all states"),
        ("n", "none, to begin a choice"),
    ),
}
