"""Commands that only look leave the database as it is: without our tables they say so; old and newer ones are read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from horsies.cli.session import open_read_only
from horsies.core.schema.install import FIRST_VERSION
from horsies.monitoring import take_snapshot
from tests.cli.support import Terminal
from tests.metrics_support import free_port

ID = "0198c5de-0001-7000-8000-000000000001"
APP = """
from horsies import *

app = Horsies(AppConfig.for_database_url("postgresql://nobody@localhost:1/none"))
"""
LOOKING = {
    "tasks": ["tasks"],
    "watched": ["tasks", "--watch"],
    "task": ["task", ID],
    "queues": ["queues", "--json"],
    "explain": ["explain", ID],
    "workers": ["workers"],
    "stale-tasks": ["stale-tasks"],
    "workflow": ["workflow", "show", ID],
    "metrics": ["metrics", "--once"],
    "tui": ["tui", "--once"],
    "schedules": ["schedules", "MODULE"],
}


@pytest.fixture
def empty(empty_database_url: str, terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """At a database without our tables."""
    return Terminal(empty_database_url, capsys)


@pytest.fixture
def module(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(APP)
    return f"{tmp_path / 'shop.py'}:app"


def words_of(command: str, module: str) -> list[str]:
    return [module if word == "MODULE" else word for word in LOOKING[command]]


def tables(terminal: Terminal) -> list[str]:
    with psycopg.connect(terminal.url) as conn:
        return [name for (name,) in conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]


def recorded(terminal: Terminal) -> dict[str, str]:
    with psycopg.connect(terminal.url) as conn:
        return dict(conn.execute("SELECT key, value FROM horsies_meta").fetchall())


def test_m13_looking_creates_no_tables_and_says_that_there_are_none(empty: Terminal, module: str) -> None:
    for command in LOOKING:
        said = empty.type(*words_of(command, module), code=1).err
        assert "there are no horsies tables in this database" in said and "horsies init-db" in said, command
        assert tables(empty) == [], command


def test_m13_who_serves_metrics_waits_for_the_tables_of_others(empty: Terminal) -> None:
    with open_read_only(None, empty.url, needs_tables=False) as app:
        refused = asyncio.run(take_snapshot(app.get_broker())).unwrap_err()
        assert "there are no horsies tables in this database" in refused.message and tables(empty) == []
        empty.type("init-db")
        assert asyncio.run(take_snapshot(app.get_broker())).unwrap().queues


def test_m13_who_acts_creates_them_as_before(empty: Terminal) -> None:
    empty.type("cancel", ID, code=1)
    assert "horsies_tasks" in tables(empty)


def given_older_schema(terminal: Terminal, *without: str) -> dict[str, str]:
    """From before the first release, and so without these columns of the tasks; what is recorded of it."""
    terminal.type("init-db")
    for column in without:
        terminal.execute(f"ALTER TABLE horsies_tasks DROP COLUMN {column} CASCADE")
    terminal.execute("UPDATE horsies_meta SET value = %s WHERE key = 'schema_version'", [str(FIRST_VERSION - 1)])
    return recorded(terminal)


def test_m13_an_older_schema_is_read_and_not_brought_up(empty: Terminal, module: str) -> None:
    before = given_older_schema(empty)
    for command in LOOKING.keys() - {"watched", "task", "explain", "workflow"}:
        empty.type(*words_of(command, module))
    for command, noun in (("task", "task"), ("explain", "task"), ("workflow", "workflow")):
        assert f"no {noun} " in empty.type(*words_of(command, module), code=1).err
    assert recorded(empty) == before


def test_m07_init_db_refuses_a_schema_from_before_the_first_release(empty: Terminal) -> None:
    before = given_older_schema(empty)
    said = " ".join(empty.type("init-db", code=1).err.split())
    assert "from before the first release" in said and "use an empty database" in said
    assert recorded(empty) == before


@pytest.mark.parametrize(("command", "column"), [("tasks", "is_waiting"), ("queues", "is_held")])
def test_m13_what_an_older_schema_does_not_have_is_said(empty: Terminal, command: str, column: str) -> None:
    """Queues are not estimated either."""
    before = given_older_schema(empty, column)
    said = empty.type(command, code=1).err
    assert column in said and "the tables may be of an older version" in said
    assert recorded(empty) == before


def test_m13_a_newer_schema_is_read_though_no_worker_could_use_it(terminal: Terminal) -> None:
    terminal.execute("UPDATE horsies_meta SET value = '99' WHERE key IN ('schema_version', 'breaking_version')")
    task_id = terminal.given()
    assert terminal.type("tasks", "--ids").out == f"{task_id}\n"
    assert "too new" in terminal.type("cancel", task_id, code=1).err


def test_m13_a_database_that_does_not_answer_is_not_called_empty(terminal: Terminal) -> None:
    url = f"postgresql://horsies:secret-word@127.0.0.1:{free_port()}/none"
    for command in ("tasks", "workers"):
        typed = terminal.type_plain(command, "--database-url", url, code=1)
        assert "the database did not answer" in typed.err and "secret-word" not in typed.err + typed.out
