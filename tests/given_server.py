"""The server that `HORSIES_TEST_DATABASE_URL` names, for a run that does not bring its own (O-30). The role of that URL
must be able to create databases; the database of the URL is only connected to. Everything that a run makes there has
the run's name in it, and is dropped at its end. What a killed run has left is dropped by the next one: each run holds
an advisory lock as long as it lives, so that nobody has to guess by age which of them are gone.
"""

from __future__ import annotations

import os
import re
import uuid
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

VARIABLE = "HORSIES_TEST_DATABASE_URL"
RUN_VARIABLE = "HORSIES_TEST_RUN"
PREFIX = "horsies_test_"
NAME = re.compile(PREFIX + r"([0-9a-f]{12})_\w+")

needs_own_server = pytest.mark.skipif(
    VARIABLE in os.environ, reason=f"reads the log of the embedded server; {VARIABLE} names another one"
)


class Run:
    """This run on the given server, from its first database to its last."""

    def __init__(self, server: str) -> None:
        self.name = uuid.uuid4().hex[:12]
        try:
            self._conn = psycopg.connect(server, autocommit=True, application_name="horsies tests")
        except psycopg.Error as error:
            raise pytest.UsageError(f"{VARIABLE} names a server that cannot be used: {str(error).strip()}") from error
        [may] = self._row("SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user")
        if not may:
            raise pytest.UsageError(f"the role of {VARIABLE} may not create databases: ALTER ROLE … CREATEDB")
        self._row("SELECT pg_advisory_lock(hashtextextended(%s, 0))", self.name)
        self._drop_what_killed_runs_left()

    def end(self) -> None:
        self._drop(self.name)
        self._conn.close()

    def _drop_what_killed_runs_left(self) -> None:
        for name in sorted({found[1] for found in map(NAME.fullmatch, self._databases()) if found} - {self.name}):
            if self._row("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", name) == (True,):
                self._drop(name)
                self._row("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", name)

    def _drop(self, run: str) -> None:
        for database in self._databases():
            if database.startswith(f"{PREFIX}{run}_"):
                drop_database(self._conn, database)

    def _databases(self) -> list[str]:
        """Those of roles that we belong to; others look after their own."""
        mine = "SELECT datname FROM pg_database WHERE starts_with(datname, %s) AND pg_has_role(datdba, 'USAGE')"
        return [name for (name,) in self._conn.execute(mine, [PREFIX])]

    def _row(self, query: str, *values: str) -> tuple[object, ...]:
        row = self._conn.execute(query.encode(), values).fetchone()
        assert row is not None
        return row


def drop_database(conn: psycopg.Connection, name: str) -> None:
    """With everybody who is in it. An autovacuum of the server is not for an ordinary role to end by force; without
    force the server ends it by itself."""
    try:
        conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
    except psycopg.errors.InsufficientPrivilege:
        conn.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))


def begin() -> Run | None:
    """For the process that starts a run; those that it starts find the run's name in their environment."""
    if VARIABLE not in os.environ:
        return None
    run = Run(url())
    os.environ[RUN_VARIABLE] = run.name
    return run


def url() -> str:
    """The database to connect to while others are made and dropped."""
    parts = urlsplit(os.environ[VARIABLE])
    if parts.scheme not in ("postgresql", "postgres"):
        raise pytest.UsageError(f"{VARIABLE} is not a URL: postgresql://user:password@host:port/postgres")
    return urlunsplit(parts._replace(path=parts.path if len(parts.path) > 1 else "/postgres"))


def database_name(purpose: str) -> str:
    """On a server that others use as well, the name tells whose a database is."""
    return f"{PREFIX}{os.environ[RUN_VARIABLE]}_{purpose}" if VARIABLE in os.environ else purpose
