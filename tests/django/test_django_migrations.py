"""The schema comes with `manage.py migrate` and goes with `migrate horsies zero` (X-20)."""

from __future__ import annotations

from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from horsies.core.schema.install import SCHEMA_VERSION, SchemaError
from tests.conftest import fresh_database
from tests.django.conftest import on_database, rows

COLUMNS = """
    SELECT table_name, column_name, data_type, column_default, is_nullable
    FROM information_schema.columns WHERE table_name LIKE 'horsies%%' ORDER BY 1, 2
"""
OURS = """
    SELECT c.relname::text FROM pg_class c WHERE c.relname LIKE 'horsies%%'
    UNION SELECT p.proname::text FROM pg_proc p WHERE p.proname LIKE 'horsies%%' ORDER BY 1
"""


def test_x20_the_last_migration_brings_the_newest_schema(_django: None) -> None:
    folder = Path(import_module("horsies.contrib.django.migrations").__file__ or "").parent
    last = sorted(path.stem for path in folder.glob("[0-9]*.py"))[-1]
    migration = import_module(f"horsies.contrib.django.migrations.{last}").Migration
    [operation] = [one for one in migration.operations if type(one).__name__ == "InstallSchema"]
    assert operation.version == SCHEMA_VERSION, (
        "a new version of the schema needs a Django migration: horsies/contrib/django/migrations/"
        f"{int(last[:4]) + 1:04}_schema_{SCHEMA_VERSION}.py with InstallSchema({SCHEMA_VERSION})"
    )


def test_x20_migrate_makes_the_schema_of_the_installer(shop: str, database_url: str) -> None:
    assert rows(shop, COLUMNS) == rows(database_url, COLUMNS) != []
    assert rows(shop, OURS) == rows(database_url, OURS)
    assert rows(shop, "SELECT value FROM horsies_meta WHERE key = 'schema_version'") == [(str(SCHEMA_VERSION),)]


def test_x20_makemigrations_finds_nothing_to_do(shop: str) -> None:
    from django.core.management import call_command

    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_x20_the_way_back_drops_our_objects_and_forth_again_makes_them(own_shop: str) -> None:
    from bookshop.tasks import ship
    from django.core.management import call_command

    from horsies.contrib.django import app

    ship.send(1).unwrap()
    before = rows(own_shop, OURS)
    app.get_broker().close()
    call_command("migrate", "horsies", "zero", verbosity=0)
    assert rows(own_shop, OURS) == []
    assert rows(own_shop, "SELECT count(*) FROM auth_user") == [(0,)]  # nobody else's
    call_command("migrate", "horsies", verbosity=0)
    call_command("migrate", "horsies", verbosity=0)
    assert rows(own_shop, OURS) == before
    assert ship.send(2).unwrap()


def test_x20_the_way_back_by_some_versions_drops_nothing(own_shop: str) -> None:
    from django.apps import apps
    from django.db import connection
    from django.db.migrations.state import ProjectState

    from horsies.contrib.django.operations import InstallSchema

    before, state = rows(own_shop, OURS), ProjectState.from_apps(apps)
    with connection.schema_editor(atomic=False) as editor:
        InstallSchema(SCHEMA_VERSION + 1).database_backwards("horsies", editor, state, state)
    assert rows(own_shop, OURS) == before


def test_x20_what_depends_on_ours_stops_the_way_back_as_a_whole(own_shop: str) -> None:
    from django.core.management import call_command

    with psycopg.connect(own_shop) as conn:
        conn.execute("CREATE TABLE mine (task varchar(36) REFERENCES horsies_tasks (id))")
    before = rows(own_shop, OURS)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        call_command("migrate", "horsies", "zero", verbosity=0)
    assert rows(own_shop, OURS) == before


def test_x20_a_database_that_a_worker_has_prepared_is_migrated_too(_django: None, database_url: str) -> None:
    from django.core.management import call_command

    before = rows(database_url, COLUMNS)
    with on_database(urlsplit(database_url).path.lstrip("/"), "default"):
        call_command("migrate", "horsies", verbosity=0)
    assert rows(database_url, COLUMNS) == before


def test_x20_tables_from_before_the_first_release_are_refused(_django: None, database_url: str) -> None:
    from django.core.management import call_command

    with psycopg.connect(database_url) as conn:
        conn.execute("UPDATE horsies_meta SET value = '1' WHERE key = 'schema_version'")
    before = rows(database_url, COLUMNS)
    with (
        on_database(urlsplit(database_url).path.lstrip("/"), "default"),
        pytest.raises(SchemaError, match="from before the first release"),
    ):
        call_command("migrate", "horsies", verbosity=0)
    assert rows(database_url, COLUMNS) == before


def test_x20_other_databases_and_routers_are_left_alone(
    _django: None, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.core.management import call_command
    from django.test import override_settings

    with fresh_database(server_url, "template0") as url, on_database(urlsplit(url).path.lstrip("/"), "other"):
        call_command("migrate", "horsies", database="other", verbosity=0)
        assert rows(url, OURS) == []
    with (
        fresh_database(server_url, "template0") as url,  # another one: there Django knows of no migration yet
        on_database(urlsplit(url).path.lstrip("/"), "default"),
        override_settings(DATABASE_ROUTERS=["tests.django.test_django_migrations.Forbids"]),
    ):
        call_command("migrate", "horsies", verbosity=0)
        assert rows(url, OURS) == []


class Forbids:
    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if app_label == "horsies" else None


def test_x20_sqlmigrate_and_a_plan_change_nothing(_django: None, server_url: str) -> None:
    with fresh_database(server_url, "template0") as url:
        with on_database(urlsplit(url).path.lstrip("/"), "default"):
            assert "CANNOT BE WRITTEN AS SQL" in said("sqlmigrate", "horsies", "0001")
            planned = said("migrate", "horsies", "--plan")
            assert f"Install or upgrade the horsies schema, version {SCHEMA_VERSION}" in planned
        assert rows(url, OURS) == []


def said(*words: str) -> str:
    from django.core.management import call_command

    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()
