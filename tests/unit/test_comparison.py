"""docs/comparison.md: its tables are whole and say the same of horsies everywhere, and what horsies does not have is
really not there. Whoever adds such a thing is told by a test that the page is out of date."""

from __future__ import annotations

import re
from pathlib import Path

import horsies
from horsies.core.task_decorator import TaskFunction

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/comparison.md").read_text()
PARTS = re.split(r"^## (.*)$", PAGE, flags=re.MULTILINE)[1:]
SECTIONS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))
PEERS = ("Celery", "Dramatiq", "RQ", "Procrastinate", "PgQueuer", "Oban for Python", "DBOS", "Temporal")
MISSING = " ".join(SECTIONS["What horsies does not have"].split())


def tables() -> dict[str, list[list[str]]]:
    found = {}
    for title, text in SECTIONS.items():
        rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in re.findall(r"^\|.*\|$", text, re.M)]
        if rows:
            found[title] = [row for row in rows if not set("".join(row)) <= set("-|")]
    return found


def test_every_peer_has_a_column_and_every_cell_says_something() -> None:
    heads = [cell for rows in tables().values() for cell in rows[0][1:]]
    assert [head for head in heads if head != "horsies"] == [*PEERS[3:6], *PEERS[:3], *PEERS[6:]]
    for title, rows in tables().items():
        assert {len(row) for row in rows} == {len(rows[0])}, title
        assert all(cell for row in rows[1:] for cell in row), title
        assert len(rows) >= 15, title


def test_the_tables_say_the_same_of_horsies() -> None:
    said: dict[str, set[str]] = {}
    for rows in tables().values():
        for row in rows[1:]:
            said.setdefault(row[0], set()).add(row[1])
    assert {name: cells for name, cells in said.items() if len(cells) > 1} == {}


def test_the_page_says_when_it_was_written_and_of_which_versions() -> None:
    head = " ".join(PAGE.partition("\n## ")[0].split())
    assert re.search(r"Written on \d+ \w+ 20\d\d", head)
    for peer in PEERS:
        assert re.search(rf"{peer}(?:'s SDK for Python)? \d+\.\d+", head), peer


def test_what_is_missing_is_missing() -> None:
    """If this fails, something was added: say so on the page, here, and on the home page."""
    options = set(TaskFunction.with_options.__annotations__)
    there = {
        "No rate limits yet": bool({"rate_limit", "rate"} & {*options, *horsies.CustomQueueConfig.model_fields}),
        "No limits by key yet": bool({"key", "concurrency_key", "lock"} & options),
        "No unique tasks": bool({"unique", "unique_for"} & options),
        "No durable steps yet": hasattr(horsies.TaskContext, "step"),
        "No signals or timers": hasattr(horsies.WorkflowHandle, "signal"),
    }
    assert [what for what in there if f"**{what}" not in MISSING] == []
    assert [what for what, is_there in there.items() if is_there] == []
