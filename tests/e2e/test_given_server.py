"""`HORSIES_TEST_DATABASE_URL`: the tests on a server that is not theirs. They make their databases there, drop them,
and clear away what a killed run has left, but nothing of a run that is alive."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.given_server import PREFIX, VARIABLE

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
SOME_TESTS = "tests/store/test_schema_tables.py"
LIVING, KILLED = "0123456789ab", "ba9876543210"


def run_tests(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    hidden = ("HORSIES_TEST_", "PYTEST_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        command, cwd=ROOT, env=environment | {VARIABLE: url}, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.fixture
def maintenance(server_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server_url, autocommit=True) as conn:
        yield conn
        for name in databases(conn):
            conn.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))


def databases(conn: psycopg.Connection) -> set[str]:
    """Those of the runs that this test is about."""
    mine = os.environ.get("HORSIES_TEST_RUN", "none")
    rows = conn.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [PREFIX])
    return {name for (name,) in rows if f"_{mine}_" not in name}


@pytest.mark.slow("runs pytest inside pytest")
@pytest.mark.parametrize("processes", ["0", "2"])
def test_o30_the_suite_runs_on_a_server_that_is_given_and_leaves_nothing(
    maintenance: psycopg.Connection, server_url: str, processes: str
) -> None:
    living, killed = f"{PREFIX}{LIVING}_template", f"{PREFIX}{KILLED}_test_1"
    for name in (living, killed):
        maintenance.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    maintenance.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [LIVING])
    done = run_tests(server_url, "-n", processes, SOME_TESTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "skipped" not in done.stdout
    assert databases(maintenance) == {living}


def test_o30_a_server_that_cannot_be_used_is_one_line(server_url: str, maintenance: psycopg.Connection) -> None:
    done = run_tests("postgresql://nobody@localhost:1/postgres", "-n", "0", SOME_TESTS)
    assert done.returncode == 4 and f"{VARIABLE} names a server that cannot be used" in done.stderr
    assert "Traceback" not in done.stderr
    done = run_tests("host=localhost", "-n", "0", SOME_TESTS)
    assert done.returncode == 4 and f"{VARIABLE} is not a URL" in done.stderr and "Traceback" not in done.stderr
    assert databases(maintenance) == set()
