"""One database for all tests of a process that only need an empty one. Before each test its rows are deleted, which
costs half of a new database, and its sessions find it as they left it. Whoever has changed anything else in it (a
table, a trigger, a right, a setting, the contents of `horsies_meta`), or has filled it, has had it: the next test gets
another.

A directory takes part by having `database_url` in its conftest; `own_database_url` is the test's own all the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.databases import fresh_database
from tests.leaks import SESSIONS, Watch

FULL = 4 << 20  # bytes in the tables, from which on a new database is cheaper
PATIENCE = 3.0
# Whatever changes a row of a catalog leaves it with another transaction's number.
_CATALOGS = (
    "pg_class",
    "pg_attribute",
    "pg_attrdef",
    "pg_constraint",
    "pg_index",
    "pg_proc",
    "pg_trigger",
    "pg_rewrite",
)
_CATALOGS += ("pg_namespace", "pg_type", "pg_extension", "pg_event_trigger", "pg_default_acl")
STATE = f"""
    SELECT ARRAY[{", ".join(f"(SELECT (count(*), max(xmin::text::bigint))::text FROM {name})" for name in _CATALOGS)}],
           (SELECT array_agg(m::text ORDER BY m::text) FROM horsies_meta AS m),
           (SELECT array_agg(s.setconfig::text) FROM pg_db_role_setting AS s WHERE s.setdatabase = d.oid),
           d.datacl::text, d.datconnlimit, d.datallowconn, d.datdba
    FROM pg_database AS d WHERE d.datname = current_database()
"""  # noqa: S608
DELETE_ALL = """
    DO $$
    DECLARE name text;
    BEGIN
        FOR name IN SELECT relname FROM pg_class
            WHERE relname LIKE 'horsies\\_%' AND relkind = 'r' AND relname <> 'horsies_meta'
        LOOP
            EXECUTE format('DELETE FROM %I', name);
        END LOOP;
    END $$
"""
SIZE = "SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE relname LIKE 'horsies\\_%' AND relkind = 'r'"
SEQUENCES = """
    SELECT setval(seqrelid, 1, FALSE) FROM pg_sequence WHERE pg_sequence_last_value(seqrelid) IS NOT NULL
"""


class SharedDatabase:
    """`emptied` gives its URL. `conn` is a connection to another database of the server."""

    def __init__(self, conn: psycopg.Connection[Any], server_url: str, template: str) -> None:
        self.conn = conn
        self._server_url = server_url
        self._template = template
        self._stack = ExitStack()
        self._url: str | None = None
        self._state: tuple[Any, ...] = ()

    def emptied(self) -> str:
        if self._url is None or not self._could_be_emptied(self._url):
            self.close()
            self._url = self._stack.enter_context(fresh_database(self._server_url, self._template))
            with psycopg.connect(self._url, autocommit=True) as session:
                self._state = session.execute(STATE).fetchone() or ()
        self._wait_until_alone()
        return self._url

    def _could_be_emptied(self, url: str) -> bool:
        try:
            with psycopg.connect(url, autocommit=True) as session:
                if session.execute(STATE).fetchone() != self._state:
                    return False
                if (session.execute(SIZE).fetchone() or (0,))[0] > FULL:
                    return False
                session.execute(DELETE_ALL)
                session.execute(SEQUENCES)
                return True
        except psycopg.Error:
            return False

    def _wait_until_alone(self) -> None:
        """Or a test that counts sessions would count ours."""
        assert self._url is not None
        deadline = time.monotonic() + PATIENCE
        while self.conn.execute(SESSIONS, (self.name,)).fetchone() and time.monotonic() < deadline:
            time.sleep(0.002)

    @property
    def name(self) -> str:
        assert self._url is not None
        return urlsplit(self._url).path.removeprefix("/")

    def close(self) -> None:
        self._url = None
        self._stack.close()


@pytest.fixture(scope="session")
def shared_database(server_url: str, template: str) -> Iterator[SharedDatabase]:
    with psycopg.connect(server_url, autocommit=True) as conn:
        shared = SharedDatabase(conn, server_url, template)
        yield shared
        shared.close()


@pytest.fixture
def database_url(shared_database: SharedDatabase) -> Iterator[str]:
    """A database with the schema installed and no rows."""
    url = shared_database.emptied()
    try:
        with Watch(shared_database.conn, shared_database.name):
            yield url
    except BaseException:
        shared_database.close()
        raise


@pytest.fixture
def own_database_url(server_url: str, template: str) -> Iterator[str]:
    """A database of the test's own with the schema installed."""
    with fresh_database(server_url, template) as url:
        yield url
