"""How much each transaction changes: what is bounded is shown by counting, not by a clock."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

_AUDIT = """
    CREATE TABLE audit (transaction bigint, rows int);
    CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.audit SELECT txid_current(), count(*) FROM changed WHERE {condition} HAVING count(*) > 0;
        RETURN NULL;
    END $$
"""


async def audit(db: AsyncConnection[Any], *, condition: str = "TRUE", **tables: str) -> None:
    """From now on count the rows that each transaction changes: `audit(db, horsies_tasks="UPDATE")`."""
    await db.execute(_AUDIT.format(condition=condition).encode())
    for table, event in tables.items():
        kind = "OLD" if event == "DELETE" else "NEW"
        await db.execute(
            f"CREATE TRIGGER audit AFTER {event} ON {table} REFERENCING {kind} TABLE AS changed "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit()".encode()
        )


async def transactions(db: AsyncConnection[Any]) -> list[int]:
    """How many rows each transaction has changed, in their order."""
    cursor = await db.execute("SELECT sum(rows)::int FROM audit GROUP BY transaction ORDER BY transaction")
    return [row[0] for row in await cursor.fetchall()]
