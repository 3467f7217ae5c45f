"""Databases of the tests' server: copies of a template that fail the test which leaves something behind."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from tests import given_server
from tests.leaks import Watch


def with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@contextlib.contextmanager
def fresh_database(server_url: str, template: str) -> Iterator[str]:
    name = given_server.database_name(f"test_{uuid.uuid4().hex[:12]}")
    with psycopg.connect(server_url, autocommit=True) as conn:
        create_database(conn, name, template)
        try:
            with Watch(conn, name):
                yield with_database(server_url, name)
        finally:
            given_server.drop_database(conn, name)


def create_database(conn: psycopg.Connection, name: str, template: str = "template0") -> None:
    # As files, because to copy a small database through the log takes twice as long. Older servers do only this.
    how = sql.SQL("STRATEGY file_copy" if conn.info.server_version >= 150_000 else "")
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} {}")
    conn.execute(statement.format(sql.Identifier(name), sql.Identifier(template), how))
