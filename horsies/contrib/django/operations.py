"""The schema as an operation of Django's migrations. Our own installer does the work, on a connection and in a
transaction of its own, so that a database gets the same schema whether `manage.py migrate`, `horsies init-db` or the
first worker was first. Each version of the schema has a migration, which says that `migrate` is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
from django.db import router
from django.db.migrations.operations.base import Operation

from horsies.contrib.django import conf
from horsies.core.db import connect
from horsies.core.models.broker import PostgresConfig
from horsies.core.schema.create import uninstall
from horsies.core.schema.install import install


class InstallSchema(Operation):
    """Bring the schema to at least this version. The way back drops all of our tables if it is the first one, and
    otherwise does nothing: older code uses a newer schema, or says that it cannot."""

    reduces_to_sql = False
    reversible = True
    atomic = False

    def __init__(self, version: int) -> None:
        self.version = version

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__name__, [self.version], {}

    def describe(self) -> str:
        return f"Install or upgrade the horsies schema, version {self.version}"

    @property
    def migration_name_fragment(self) -> str:
        return f"schema_{self.version}"

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The models are declared by the migration."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if _is_for_us(app_label, schema_editor):
            _run(
                schema_editor.connection.alias,
                lambda conn, config: install(conn, notify=config.notify, change_notify=True),
            )

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        is_first = all(app != app_label for app, _ in to_state.models)
        if is_first and _is_for_us(app_label, schema_editor):
            _run(schema_editor.connection.alias, lambda conn, _: uninstall(conn))


def _is_for_us(app_label: str, schema_editor: Any) -> bool:
    """Only the database of the app has our tables, unless the routers of the project forbid it even there."""
    using = schema_editor.connection.alias
    return using == conf.alias() and bool(router.allow_migrate(using, app_label))


def _run(using: str, work: Callable[[psycopg.AsyncConnection[Any], PostgresConfig], Awaitable[object]]) -> None:
    """On a connection of its own. In a thread, because whoever migrates may have a loop running."""
    fields = dict(conf.option("BROKER", {}))
    config = PostgresConfig(**{**fields, "database_url": conf.url_of(conf.connection_params(using))})

    async def run() -> None:
        conn = await connect(config, session=True, name="horsies migrate")
        try:
            await work(conn, config)
        finally:
            await conn.close()

    with ThreadPoolExecutor(1, "horsies migrate") as aside:
        aside.submit(asyncio.run, run()).result()
