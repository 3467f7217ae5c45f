"""A real Django project in the process of the tests (`project/`), each test on a database of its own that was migrated
with `manage.py migrate` once for this process. The name of the database is put where Django's own test runner puts it,
into the settings of its connection, and the app follows. What needs other settings is a process of its own
(`run_manage`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests import given_server
from tests.conftest import create_database, fresh_database, with_database

pytest.importorskip("django")
PROJECT = Path(__file__).parent / "project"
with_versions = pytest.mark.slow("other tests of workers show it without Django")


@pytest.fixture(scope="session")
def _django(server_url: str) -> Iterator[None]:
    """Django, set up once in this process."""
    os.environ.setdefault("SHOP_DATABASE", with_database(server_url, "postgres"))
    os.environ.setdefault("SHOP_OTHER", with_database(server_url, "postgres"))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_of_shop.settings")
    sys.path.insert(0, str(PROJECT))
    import django

    django.setup()
    yield
    sys.path.remove(str(PROJECT))


@pytest.fixture(scope="session")
def migrated(_django: None, server_url: str) -> Iterator[str]:
    """Name of a database that Django has migrated."""
    from django.core.management import call_command

    name = given_server.database_name(f"horsies_django_{os.getpid()}")
    with psycopg.connect(server_url, autocommit=True) as conn:
        given_server.drop_database(conn, name)
        create_database(conn, name)
        with on_database(name, "default"):
            call_command("migrate", verbosity=0)
        yield name
        given_server.drop_database(conn, name)


class on_database:
    """Inside the block Django's connection, and with it the app, is on this database."""

    def __init__(self, name: str, alias: str) -> None:
        self._name, self._alias = name, alias

    def __enter__(self) -> None:
        from django.db import connections

        connections.close_all()
        self._before = connections[self._alias].settings_dict["NAME"]
        connections[self._alias].settings_dict["NAME"] = self._name

    def __exit__(self, *_: object) -> None:
        from django.db import connections

        from horsies.contrib.django import project

        connections.close_all()
        if (made := project.made_app()) is not None:
            made.get_broker().close()
        connections[self._alias].settings_dict["NAME"] = self._before


@pytest.fixture(scope="session")
def _shop(migrated: str, server_url: str) -> Iterator[str]:
    """To copy a database takes longer than most of the tests, so that they share one."""
    with fresh_database(server_url, migrated) as url:
        yield url


@pytest.fixture(scope="session")
def _other(migrated: str, server_url: str) -> Iterator[str]:
    with fresh_database(server_url, migrated) as url:
        yield url


@pytest.fixture
def shop(_shop: str) -> Iterator[str]:
    """The project on a migrated database without rows; its URL."""
    with on_database(urlsplit(_shop).path.lstrip("/"), "default"):
        yield _shop
    clear(_shop)


@pytest.fixture
def other(_other: str) -> Iterator[str]:
    """The second database of the project, migrated too."""
    with on_database(urlsplit(_other).path.lstrip("/"), "other"):
        yield _other
    clear(_other)


@pytest.fixture
def own_shop(migrated: str, server_url: str) -> Iterator[str]:
    """The project on a database of the test's own, whose schema it may change."""
    with fresh_database(server_url, migrated) as url, on_database(urlsplit(url).path.lstrip("/"), "default"):
        yield url


def clear(url: str) -> None:
    """Without the rows of a test. What Django's own migrations have written stays."""
    from horsies.core.sql import load

    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(load("testing/clear"))
        conn.execute("TRUNCATE horsies_workers, horsies_worker_states, horsies_heartbeats, horsies_known_names CASCADE")
        conn.execute(
            "TRUNCATE horsies_audit, horsies_rollup, bookshop_order, auth_user, django_session RESTART IDENTITY CASCADE"
        )


def environment(url: str, **more: str) -> dict[str, str]:
    outer = {name: value for name, value in os.environ.items() if name not in ("SHOP_OTHER", "DATABASE_URL")}
    path = os.pathsep.join([str(PROJECT), str(PROJECT.parents[2])])
    return {**outer, "SHOP_DATABASE": url, "PYTHONPATH": path, **more}


def manage(url: str, *words: str, check: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
    """`manage.py` with these words, in a process of its own."""
    command = [sys.executable, str(PROJECT / "manage.py"), *words]
    ended = subprocess.run(
        command, env=environment(url, **more), cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False
    )
    assert not check or ended.returncode == 0, ended.stdout + ended.stderr
    return ended


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts programs that run until the test ends."""
    running: list[subprocess.Popen[str]] = []

    def start(url: str, *command: str, **more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *command], env=environment(url, **more), cwd=PROJECT, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def rows(url: str, statement: str, *params: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as conn:
        return conn.execute(statement.encode(), params).fetchall()
