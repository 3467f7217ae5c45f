"""Reading values that Python cannot represent.

PostgreSQL stores `infinity` and years from 4713 BC to 294276, where a `datetime` ends at the year 9999; and JSON that
is nested deeper, or has longer numbers, than Python reads. Our constraints refuse such dates, but a row may be older
than these, and one value that cannot be read would fail the whole result. So on all our connections such a date becomes
the nearest one that every time zone can show, `LONG_AGO` or `FAR_FUTURE`, and such JSON becomes None.
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


class _Forgiving(Loader):
    """Uses the loader of psycopg for this type."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        usual = psycopg.adapters.get_loader(oid, Format.TEXT)
        assert usual is not None
        self._load = usual(oid, context).load


class ForgivingDateLoader(_Forgiving):
    """A date of any year."""

    def load(self, data: Buffer) -> Any:
        try:
            found = self._load(data)
        except (psycopg.DataError, OverflowError, ValueError):
            # As text these are `infinity`, `-infinity`, `… BC`, and years with more than four digits.
            text = bytes(data)
            return LONG_AGO if text.startswith((b"-", b"0001-")) or text.endswith(b"BC") else FAR_FUTURE
        return LONG_AGO if found < LONG_AGO else min(found, FAR_FUTURE)


class ForgivingJsonLoader(_Forgiving):
    """JSON of any depth, with numbers of any length."""

    def load(self, data: Buffer) -> Any:
        try:
            return self._load(data)
        except (ValueError, RecursionError):
            return None


def read_everything(conn: AsyncConnection[Any]) -> None:
    """No value in a result makes this connection fail."""
    conn.adapters.register_loader("timestamptz", ForgivingDateLoader)
    conn.adapters.register_loader("jsonb", ForgivingJsonLoader)
