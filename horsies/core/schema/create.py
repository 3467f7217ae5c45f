"""Creates a fresh schema from the table models. Only this module needs SQLAlchemy, whose import takes longer than the
rest of the library; so it is imported only if tables are really created.
"""

import psycopg
from sqlalchemy import create_mock_engine
from sqlalchemy.schema import ExecutableDDLElement

from horsies.core.models import dashboard_pg, fleet_pg, task_pg, workflow_pg

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
