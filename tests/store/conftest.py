"""For statements that need no commit: one database for each module, and for each test a transaction of its own, rolled
back at the end. In it the database's clock stands still, so that ages are exact to the microsecond.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from psycopg import AsyncConnection

from tests import emptied

database_url, own_database_url = emptied.database_url, emptied.own_database_url


@pytest.fixture
async def frozen(module_url: str) -> AsyncIterator[AsyncConnection]:
    """A connection inside a transaction that leaves nothing behind."""
    async with (
        await AsyncConnection.connect(module_url, autocommit=True) as conn,
        conn.transaction(force_rollback=True),
    ):
        yield conn
