"""Puts the functions of the current version in place, of which some run with the rights of their owner.

In such a function no name may mean something that somebody else has made. A role that may create in our schema (every
role could in `public` before PostgreSQL 15) can put an operator `=(varchar, text)` there, which fits a comparison
better than that of the server, wherever the schema stands in the search path. So their path has no schema but
`pg_catalog`, and what is ours is named with its schema, which is written into the text when it is installed.
"""

import re
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from horsies.core.sql import load

# The functions that read a table. A user who inserts a task may have another search path and no right to that table.
TABLE_READERS = (
    "horsies_ring(text, text, text)",
    "horsies_notify_task_changes()",
    "horsies_count_new_task()",
    "horsies_count_deleted_tasks()",
    "horsies_follow_deleted_tasks()",
    "horsies_keep_known_names()",
    "horsies_notify_workflow_changes()",
    "horsies_monitor_worker_states()",
    "horsies_find_sent(json)",
    "horsies_send(text, jsonb, text, integer, interval, timestamptz, text)",
    "horsies_result(text)",
)
# Only roles that were granted it may call these (O-20).
NOT_FOR_ALL = ("horsies_send(", "horsies_result(")

# A comment, a text, the quotes of a body, or a name of ours; `horsies_send.priority` is a parameter.
_PIECES = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\$\$|(?<![\w.])horsies_\w+(?![\w.])")


async def put_functions(conn: psycopg.AsyncConnection[Any], schema: str, mode: str) -> None:
    """Create or replace them, without locking any table."""
    home = Identifier(schema).as_string(conn)
    for text in (
        load("schema/functions"),
        load("schema/sending"),
        load(f"schema/notify_{mode}"),  # this replaces some of them
        load("schema/task_changes", mode),
    ):
        await conn.execute(qualified(text, home).encode())
    # A plan that was made while the waiting list was empty would read all of it when thousands wait. There is an index.
    for function in TABLE_READERS:
        ours = SQL("{}.{}").format(Identifier(schema), SQL(function))
        await conn.execute(
            SQL(
                "ALTER FUNCTION {} SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off"
            ).format(ours)
        )
        # That of a trigger: nobody else may have it act on what his own table says.
        if function.endswith("()") or function.startswith(NOT_FOR_ALL):
            await conn.execute(SQL("REVOKE EXECUTE ON FUNCTION {} FROM PUBLIC").format(ours))


def qualified(text: str, home: str) -> str:
    """The text with every table and function of ours named in this schema, which is quoted already."""
    return _PIECES.sub(lambda found: _piece(found[0], home), text)


def _piece(piece: str, home: str) -> str:
    if piece == "$$":
        return "$horsies$"  # a schema may have $$ in its name
    return f"{home}.{piece}" if piece.startswith("horsies_") else piece
