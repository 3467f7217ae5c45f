"""Every SQL file is a statement that PostgreSQL accepts on a fresh schema, is used, and keeps to its own business."""

from __future__ import annotations

import re

from psycopg import AsyncConnection
from psycopg._queries import MAX_CACHED_STATEMENT_LENGTH

from tests.architecture.source import forms, is_copy, modules, prepared, statements
from tests.each import each

# The arrows of the state diagram: nothing else may change the status of a task.
ARROWS = {
    "tasks/cancel",
    "tasks/claim",
    "tasks/complete",
    "tasks/expire",
    "tasks/expire_waiting",
    "tasks/fail",
    "tasks/fail_unknown",
    "tasks/leave",
    "tasks/requeue",
    "tasks/retry",
    "tasks/set_aside",
    "tasks/start",
    "workflows/start_nodes",  # the same arrow for tasks of workflows, whose nodes move with them
}
RUN_TIME = [name for name in statements() if not name.startswith("schema/")]
SETS_STATUS = re.compile(
    r"UPDATE\s+horsies_tasks\b(?:\s+(?:AS\s+)?\w+)?\s+SET\b(?:(?!\bWHERE\b|\bFROM\b).)*?\bstatus\s*=", re.S
)
STATEMENT_IN_PYTHON = re.compile(
    r"""["'](?:\s|\\n)*(?:SELECT\s.+\sFROM\s|INSERT\s+INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s)""", re.S
)


def without_comments(text: str) -> str:
    return re.sub(r"--[^\n]*", "", text)


@each("name", RUN_TIME)
async def test_the_server_accepts_it_on_a_fresh_schema(module_url: str, name: str) -> None:
    """A prepared statement ends with its connection, so that one database stays fresh for all of them."""
    async with await AsyncConnection.connect(module_url, autocommit=True) as conn:
        for form in forms(name):
            if is_copy(form):
                async with conn.cursor().copy(form.encode()):
                    pass  # no rows
                continue
            await conn.execute(prepared(form)[0].encode())
            await conn.execute("DEALLOCATE checked")


def test_psycopg_analyses_the_statements_of_the_engine_once() -> None:
    """It keeps what it has found out about a text, if that is not too long; otherwise each execution costs a search for
    parameters. The statements about tasks and workflows are executed thousands of times."""
    names = [name for name in RUN_TIME if name.startswith(("tasks/", "workflows/"))]
    assert [name for name in names for form in forms(name) if len(form) > MAX_CACHED_STATEMENT_LENGTH] == []


def test_each_begins_by_saying_what_it_does() -> None:
    assert [name for name, text in statements().items() if not text.startswith("-- ")] == []


def test_each_is_loaded_somewhere() -> None:
    sources = "".join(module.text for module in modules().values())
    written = set(re.findall(r'"([a-z_]+/\w+)"', sources))
    begun = tuple(re.findall(r'f"([a-z_]+/\w*)\{', sources))  # the rest of the name is chosen at run time
    assert [name for name in statements() if name not in written and not name.startswith(begun)] == []


def test_everything_that_is_loaded_exists() -> None:
    loaded = {name for module in modules().values() for name in re.findall(r'\bload\("([^"{]+)"\)', module.text)}
    assert loaded - set(statements()) == set()


def test_only_the_arrows_change_the_status_of_a_task() -> None:
    assert {name for name in RUN_TIME if SETS_STATUS.search(without_comments(statements()[name]))} == ARROWS


def test_every_change_of_a_task_is_guarded_by_its_status() -> None:
    locked_first = re.compile(
        r"(?:\bstatus\s*(?:=|IN)\s*[('\"]|\bis_waiting\b).*\bFOR UPDATE\b.*UPDATE\s+horsies_tasks\b", re.S
    )
    in_the_update = re.compile(r"UPDATE\s+horsies_tasks\b.*\bWHERE\b[^;]*\bt\.status\s*(?:=|IN)\s*[(']", re.S)
    texts = {name: without_comments(statements()[name]) for name in RUN_TIME}
    changes = {name: text for name, text in texts.items() if re.search(r"UPDATE\s+horsies_tasks\b", text)}
    assert changes
    unguarded = [n for n, text in changes.items() if not (locked_first.search(text) or in_the_update.search(text))]
    assert unguarded == [], "locks, or updates, only the status it expects"


def test_no_statement_names_a_schema() -> None:
    assert [name for name, text in statements().items() if re.search(r"\w\.horsies_|\bpublic\.", text)] == []


def test_no_statement_hides_in_python() -> None:
    assert [name for name, module in modules().items() if STATEMENT_IN_PYTHON.search(module.text)] == []
