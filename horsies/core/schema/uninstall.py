"""Removes the schema: tables with everything in them, triggers and functions. Nothing calls this but `manage.py migrate
horsies zero`. It is one transaction, and nothing is cascaded: if something of the user's depends on ours (a foreign
key, a trigger that calls a function), PostgreSQL refuses, and nothing has changed.
"""

from typing import Any

import psycopg
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Identifier

from horsies.core.schema.create import METADATA
from horsies.core.schema.install import SCHEMA, lock_key
from horsies.core.sql import load


async def uninstall(conn: psycopg.AsyncConnection[Any]) -> None:
    """Remove all of it, if it is there."""
    async with conn.transaction():
        await conn.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key(SCHEMA)])
        async with conn.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(load("schema/our_functions").encode())
            functions = [str(name) for (name,) in await cursor.fetchall()]
        names = SQL(", ").join(Identifier(table.name) for table in METADATA.sorted_tables)
        await conn.execute(SQL("DROP TABLE IF EXISTS {}").format(names))
        for function in functions:
            await conn.execute(SQL("DROP FUNCTION {}").format(SQL(function)))
