"""Numbered migrations: how a schema made by older code is upgraded. `create` makes a fresh one.

``migrations/NNNN_what.sql`` takes the tables from version NNNN-1 to NNNN; 0001 is the first schema, frozen, so that a
test can run all steps and compare the result with the table models of today. A migration contains only tables: the
functions and triggers of the current version are installed after the last one (``install``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psycopg

MIGRATIONS = Path(__file__).parent / "migrations"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: the version it leads to, and its SQL."""

    version: int
    name: str
    sql: str


def migrations(directory: Path = MIGRATIONS) -> list[Migration]:
    """All steps in order; a gap or a duplicate number is our mistake and raises."""
    found = [
        Migration(int(path.stem.partition("_")[0]), path.stem, path.read_text(encoding="utf-8"))
        for path in sorted(directory.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    ]
    if [step.version for step in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations must be numbered 1, 2, 3, …: {', '.join(step.name for step in found)}")
    return found


async def migrate(conn: psycopg.AsyncConnection, current: int, directory: Path = MIGRATIONS) -> None:
    """Run the steps after `current`, inside the caller's transaction."""
    for step in migrations(directory):
        if step.version > current:
            await conn.execute(step.sql.encode())
