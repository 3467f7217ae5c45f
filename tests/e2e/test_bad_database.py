"""A database that cannot serve: wrong, unreachable, read-only, too old, too new, full. The user is told what, where and
what to do, no password and no traceback; and no task is lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.cli_support import APP, run

pytestmark = pytest.mark.e2e

SEND = ("send", "shop", "shop.refuse", "--args", '["x"]')


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement.encode())


def name_of(url: str) -> str:
    with psycopg.connect(url) as conn:
        return conn.info.dbname


def read_only(url: str) -> None:
    execute(url, f"ALTER DATABASE {name_of(url)} SET default_transaction_read_only = on")


def too_old(url: str) -> None:
    """The server is asked for its version like any other; in this database somebody else answers."""
    execute(
        url,
        "CREATE SCHEMA old",
        "CREATE FUNCTION old.current_setting(name text) RETURNS text LANGUAGE sql AS"
        " $$ SELECT CASE name WHEN 'server_version_num' THEN '120022' ELSE pg_catalog.current_setting(name) END $$",
        f"ALTER DATABASE {name_of(url)} SET search_path = public, old, pg_catalog",
    )


def too_new(url: str) -> None:
    execute(url, "UPDATE horsies_meta SET value = '999' WHERE key IN ('schema_version', 'breaking_version')")


UNUSABLE = pytest.mark.parametrize(
    ("spoil", "what", "advice"),
    [
        (read_only, "read-only", "connect to the primary server"),
        (too_old, "PostgreSQL 12 is too old", "needs PostgreSQL 13 or newer"),
        (too_new, "is too new for this code", "upgrade the horsies package"),
    ],
)


@UNUSABLE
def test_t12_a_worker_refuses_a_database_it_cannot_use(
    project: Path, database_url: str, spoil: Any, what: str, advice: str
) -> None:
    execute(database_url, "INSERT INTO horsies_tasks (id, task_name, args) VALUES ('t', 'shop.refuse', '[\"x\"]')")
    spoil(database_url)
    refused = run("worker", "shop", cwd=project, SHOP_DATABASE_URL=database_url)
    assert refused.returncode == 1
    assert what in refused.stderr and advice in refused.stderr and "HRS-211" in refused.stderr
    assert "Traceback" not in refused.stderr
    with psycopg.connect(database_url) as conn:
        assert conn.execute("SELECT status, claim_seq FROM horsies_tasks").fetchall() == [("PENDING", 0)]


def test_o30_every_command_refuses_an_old_server(project: Path, database_url: str) -> None:
    """Also those that would not write to it: `check --live` is what somebody runs before the first worker."""
    too_old(database_url)
    for command in (("worker", "shop"), ("init-db", "shop"), SEND, ("check", "shop", "--live")):
        refused = run(*command, cwd=project, SHOP_DATABASE_URL=database_url)
        assert refused.returncode == 1, command
        assert "PostgreSQL 12 is too old" in refused.stderr and "needs PostgreSQL 13 or newer" in refused.stderr
        assert "Traceback" not in refused.stderr
