"""A database that cannot serve: wrong, unreachable, read-only, too old, too new, full. The user is told what, where and
what to do, no password and no traceback; and no task is lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from horsies import TaskSendErrorCode
from tests.app_support import an_app, define_add
from tests.conftest import with_database
from tests.e2e.cli_support import APP, Started, run

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


@UNUSABLE
def test_t12_a_send_to_a_database_it_cannot_use_says_so(
    project: Path, database_url: str, spoil: Any, what: str, advice: str
) -> None:
    spoil(database_url)
    refused = run(*SEND, cwd=project, SHOP_DATABASE_URL=database_url)
    assert refused.returncode == 1
    assert what in refused.stderr and advice in refused.stderr
    assert "Traceback" not in refused.stderr
    with an_app(database_url) as app:
        error = define_add(app).send(1, 2).unwrap_err()
    assert error.code is TaskSendErrorCode.ENQUEUE_FAILED and what in error.message and advice in error.message
    assert error.task_id is not None and error.payload is not None, "it can be sent again when the database is well"


def test_o30_every_command_refuses_an_old_server(project: Path, database_url: str) -> None:
    """Also those that would not write to it: `check --live` is what somebody runs before the first worker."""
    too_old(database_url)
    for command in (("worker", "shop"), ("init-db", "shop"), SEND, ("check", "shop", "--live")):
        refused = run(*command, cwd=project, SHOP_DATABASE_URL=database_url)
        assert refused.returncode == 1, command
        assert "PostgreSQL 12 is too old" in refused.stderr and "needs PostgreSQL 13 or newer" in refused.stderr
        assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("command", [("worker", "shop"), SEND, ("init-db", "shop")])
def test_t10_a_url_nobody_speaks_is_refused_before_anything_happens(project: Path, command: tuple[str, ...]) -> None:
    refused = run(*command, "--database-url", "mysql://me:topsecret@db.example.com/x", cwd=project)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error[HRS-203]: ") and "postgresql://" in refused.stderr
    assert "topsecret" not in refused.stderr and "Traceback" not in refused.stderr


def test_w61_a_database_that_does_not_exist_is_named(project: Path, database_url: str) -> None:
    nowhere = with_database(database_url, "no_such_database")
    with Started("worker", "shop", cwd=project, SHOP_DATABASE_URL=nowhere) as worker:
        worker.until_it_says('database "no_such_database" does not exist')
        assert worker.stop() == 0
    assert "Traceback" not in worker.said
    refused = run(*SEND, cwd=project, SHOP_DATABASE_URL=nowhere)
    assert refused.returncode == 1
    assert 'database "no_such_database" does not exist' in refused.stderr and "Traceback" not in refused.stderr


def test_t48_a_full_disk_is_said_and_the_send_can_be_made_again(project: Path, database_url: str) -> None:
    execute(
        database_url,
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$",
        "CREATE TRIGGER full_disk BEFORE INSERT ON horsies_tasks FOR EACH ROW EXECUTE FUNCTION full_disk()",
    )
    refused = run(*SEND, cwd=project, SHOP_DATABASE_URL=database_url)
    assert refused.returncode == 1
    assert "No space left on device" in refused.stderr and "Traceback" not in refused.stderr
    execute(database_url, "DROP TRIGGER full_disk ON horsies_tasks")
    assert run(*SEND, cwd=project, SHOP_DATABASE_URL=database_url).returncode == 0
