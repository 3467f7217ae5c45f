"""Creates a fresh schema from the table models, and removes it. Only this module needs SQLAlchemy, whose import takes
longer than the rest of the library; so it is imported only if tables are really created or removed.
"""

from typing import Any

import psycopg
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Identifier
from sqlalchemy import create_mock_engine
from sqlalchemy.schema import ExecutableDDLElement

from horsies.core.models import dashboard_pg, fleet_pg, task_pg, workflow_pg
from horsies.core.schema.install import SCHEMA, lock_key
from horsies.core.sql import load

# Each has declared its tables when it was imported.
METADATA = task_pg.Base.metadata
assert METADATA is workflow_pg.WorkflowModel.metadata is fleet_pg.WaitingModel.metadata
assert METADATA is dashboard_pg.RollupModel.metadata


async def create_tables(conn: psycopg.AsyncConnection, existing: frozenset[str] = frozenset()) -> None:
    """Create every declared table that does not exist yet, with its indexes, inside the caller's transaction."""
    for statement in creation_statements(existing):
        await conn.execute(statement.encode())


def creation_statements(existing: frozenset[str] = frozenset()) -> list[str]:
    """What ``Base.metadata.create_all`` would run: SQLAlchemy makes the statements, and psycopg runs them in one
    transaction."""
    statements: list[str] = []

    def note(ddl: ExecutableDDLElement, *_: object, **__: object) -> None:
        statements.append(str(ddl.compile(dialect=engine.dialect)).strip())

    engine = create_mock_engine("postgresql+psycopg://", note)
    missing = [table for table in METADATA.sorted_tables if table.name not in existing]
    METADATA.create_all(engine, tables=missing, checkfirst=False)
    return statements


async def uninstall(conn: psycopg.AsyncConnection[Any]) -> None:
    """Remove all of it, with everything in it, if it is there (`manage.py migrate horsies zero`). It is one
    transaction, and nothing is cascaded: if something of the user's depends on ours (a foreign key, a trigger that
    calls a function), PostgreSQL refuses, and nothing has changed."""
    async with conn.transaction():
        await conn.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key(SCHEMA)])
        async with conn.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(load("schema/our_functions").encode())
            functions = [str(name) for (name,) in await cursor.fetchall()]
        names = SQL(", ").join(Identifier(table.name) for table in METADATA.sorted_tables)
        await conn.execute(SQL("DROP TABLE IF EXISTS {}").format(names))
        for function in functions:
            await conn.execute(SQL("DROP FUNCTION {}").format(SQL(function)))
