"""Roles of the test's server: made for a test, with a password, and dropped afterwards with their rights."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from psycopg import sql

PASSWORD = "open sesame"


@contextlib.contextmanager
def a_role(url: str, name: str = "role") -> Iterator[str]:
    """A role that may connect, and nothing else; its name needs quoting."""
    role = f'{name} "{uuid.uuid4().hex[:8]}'
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(role), sql.Literal(PASSWORD)))
        try:
            yield role
        finally:
            conn.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
            conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def as_role(url: str, role: str) -> str:
    """The same database for this role."""
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{quote(role, safe='')}:{quote(PASSWORD, safe='')}@{where}"))
