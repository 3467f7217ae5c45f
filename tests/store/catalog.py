"""Reads what a schema consists of from PostgreSQL's own catalog, in a form that tests can compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import tuple_row

COLUMNS = """
    SELECT c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull,
           COALESCE(pg_get_expr(d.adbin, d.adrelid), CASE WHEN a.attidentity <> '' THEN 'identity' END)
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
    ORDER BY 1, a.attnum
"""
INDEXES = """
    SELECT indexname::text, replace(indexdef, ' ' || schemaname || '.', ' ')
    FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1
"""
CONSTRAINTS = """
    SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = current_schema()::regnamespace ORDER BY 1, 2
"""
FUNCTIONS = """
    SELECT p.oid::regprocedure::text, prosrc, prosecdef, COALESCE(array_to_string(proconfig, ';'), '')
    FROM pg_proc p WHERE pronamespace = current_schema()::regnamespace ORDER BY 1
"""
TRIGGERS = """
    SELECT c.relname::text, t.tgname::text, pg_get_triggerdef(t.oid)
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace ORDER BY 1, 2
"""
STORAGE = """
    SELECT relname::text, relpersistence::text, COALESCE(reloptions, '{}')
    FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' ORDER BY 1
"""
SEQUENCES = """
    SELECT sequencename::text, data_type::text, cycle, max_value, increment_by
    FROM pg_sequences WHERE schemaname = current_schema() ORDER BY 1
"""
CATALOG = {
    "columns": COLUMNS,
    "indexes": INDEXES,
    "constraints": CONSTRAINTS,
    "functions": FUNCTIONS,
    "triggers": TRIGGERS,
    "storage": STORAGE,
    "sequences": SEQUENCES,
}


@dataclass(frozen=True)
class Column:
    """A column's type, whether it may be NULL, and the text of its default."""

    type: str
    not_null: bool
    default: str | None


async def snapshot(conn: AsyncConnection) -> dict[str, list[tuple[Any, ...]]]:
    """Everything the schema consists of."""
    return {kind: await _rows(conn, query) for kind, query in CATALOG.items()}


async def columns_of(conn: AsyncConnection, table: str) -> dict[str, Column]:
    """The columns of one table by name."""
    return {str(row[1]): Column(*row[2:]) for row in await _rows(conn, COLUMNS) if row[0] == table}


async def indexes_of(conn: AsyncConnection, table: str) -> dict[str, str]:
    """Every index of one table: its name, and what follows the method in its definition; a method that is not the usual
    one is named."""
    found = {}
    for name, definition in await _rows(conn, INDEXES):
        head, _, rest = str(definition).partition(" USING ")
        body = rest.removeprefix("btree ") if rest.startswith("btree ") else f"USING {rest}"
        if head.endswith(f" ON {table}"):
            found[str(name)] = ("UNIQUE " if "UNIQUE INDEX" in head else "") + body
    return found


async def constraints_of(conn: AsyncConnection, table: str) -> set[str]:
    """The definitions of one table's constraints."""
    return {str(row[2]) for row in await _rows(conn, CONSTRAINTS) if row[0] == table}


async def _rows(conn: AsyncConnection, query: str) -> list[tuple[Any, ...]]:
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(query)
        # Not-null constraints are catalogued from PostgreSQL 18 on; columns tell the same on every version.
        return [row for row in await cursor.fetchall() if not str(row[-1]).startswith("NOT NULL ")]
