"""Reading dates that Python cannot represent.

PostgreSQL stores `infinity` and years from 4713 BC to 294276; a `datetime` ends at the year 9999. Our constraints
refuse such values, but a row may be older than these, and one date that cannot be read would fail the whole result.
So on all our connections they become the nearest date that every time zone can show: `LONG_AGO` or `FAR_FUTURE`.
"""

from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)
FAR_FUTURE = datetime(9999, 12, 30, tzinfo=UTC)


class ForgivingDateLoader(Loader):
    """The loader of psycopg, and what to do about the dates that it refuses."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        usual = psycopg.adapters.get_loader(oid, Format.TEXT)
        assert usual is not None
        self._load = usual(oid, context).load

    def load(self, data: Buffer) -> Any:
        try:
            found = self._load(data)
        except (psycopg.DataError, OverflowError, ValueError):
            # As text these are `infinity`, `-infinity`, `… BC`, and years with more than four digits.
            text = bytes(data)
            return LONG_AGO if text.startswith((b"-", b"0001-")) or text.endswith(b"BC") else FAR_FUTURE
        return LONG_AGO if found < LONG_AGO else min(found, FAR_FUTURE)


def read_every_date(conn: AsyncConnection[Any]) -> None:
    """No date in a result makes this connection fail."""
    conn.adapters.register_loader("timestamptz", ForgivingDateLoader)
