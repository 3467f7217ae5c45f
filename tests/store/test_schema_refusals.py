"""Where the schema cannot be put or used, the error says what, where, and what to do."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, sql

from horsies.core.db.connections import connect as open_connection
from horsies.core.errors import ErrorCode
from horsies.core.models.broker import PostgresConfig
from horsies.core.schema.install import (
    SCHEMA_VERSION,
    InstallReport,
    Release,
    SchemaError,
    Server,
    install,
    refuse_unusable,
)
from tests.conftest import with_database
from tests.given_server import database_name

UP_TO_DATE = InstallReport(SCHEMA_VERSION, "always")


async def connect(url: str, **options: Any) -> AsyncConnection:
    return await AsyncConnection.connect(url, autocommit=True, **options)


def server(**facts: Any) -> Server:
    usual: dict[str, Any] = {
        "version": 180000,
        "database": "app",
        "user": "ann",
        "schema": "public",
        "in_recovery": False,
        "read_only": False,
        "has_meta": False,
        "may_create": True,
    }
    return Server(**(usual | facts))


def test_t04_server_versions_from_13_on_are_accepted() -> None:
    refuse_unusable(server(version=130000))
    with pytest.raises(SchemaError, match="PostgreSQL 12 is too old") as caught:
        refuse_unusable(server(version=120022))
    assert "13 or newer" in (caught.value.help_text or "")
    assert caught.value.code is ErrorCode.BROKER_INIT_FAILED


def test_a_standby_is_refused() -> None:
    with pytest.raises(SchemaError, match="read-only") as caught:
        refuse_unusable(server(in_recovery=True, read_only=True))
    assert "it is a standby" in caught.value.notes
    assert "primary" in (caught.value.help_text or "")


@pytest.mark.parametrize("url", ["empty_database_url", "database_url"])
async def test_a_read_only_server_is_refused(request: pytest.FixtureRequest, url: str) -> None:
    address = request.getfixturevalue(url)
    async with await connect(address, options="-c default_transaction_read_only=on") as conn:
        with pytest.raises(SchemaError, match="read-only") as caught:
            await install(conn)
        assert "transactions there are read-only by default" in caught.value.notes
        assert conn.info.dbname in str(caught.value)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
async def test_a_database_of_another_encoding_is_refused(server_url: str, encoding: str) -> None:
    name = database_name(f"odd_{uuid.uuid4().hex[:8]}")
    create = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING {} LOCALE 'C'").format(
        sql.Identifier(name), encoding
    )
    async with await connect(server_url) as maintenance:
        await maintenance.execute(create)
        try:
            config = PostgresConfig(database_url=with_database(server_url, name))
            async with await open_connection(config) as conn:
                with pytest.raises(SchemaError, match=f"has the encoding {encoding}, horsies needs UTF8") as caught:
                    await install(conn)
            assert "ENCODING 'UTF8'" in (caught.value.help_text or "")
        finally:
            await maintenance.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


async def test_a_search_path_without_a_schema_is_refused(empty_database_url: str) -> None:
    async with await connect(empty_database_url, options="-c search_path=nowhere") as conn:
        with pytest.raises(SchemaError, match="no schema of the search path"):
            await install(conn)


@pytest.fixture
async def stranger(superuser: None, empty_database_url: str) -> Any:
    """A role that may connect and nothing else, with odd characters in its name."""
    name = f'o"dd {psycopg.conninfo.conninfo_to_dict(empty_database_url)["dbname"]}'
    async with await connect(empty_database_url) as conn:
        await conn.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        await conn.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(name)))
        await conn.execute(sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(sql.Identifier(name)))
        yield name
        await conn.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
        await conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


async def test_a_role_that_may_not_create_is_told_what_to_do(empty_database_url: str, stranger: str) -> None:
    async with await connect(empty_database_url) as conn:
        await conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(stranger)))
        with pytest.raises(SchemaError, match="no permission") as caught:
            await install(conn)
        assert caught.value.code is ErrorCode.BROKER_INIT_FAILED
        assert "permission denied for schema public" in str(caught.value)
        assert sql.Identifier(stranger).as_string(conn) in (caught.value.help_text or "")
        assert "horsies init-db" in (caught.value.help_text or "")


async def test_a_role_that_may_not_read_the_tables_is_told_so(empty_database_url: str, stranger: str) -> None:
    async with await connect(empty_database_url) as conn:
        await install(conn)
        await conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(stranger)))
        with pytest.raises(SchemaError, match="no permission") as caught:
            await install(conn)
        assert "horsies_meta" in str(caught.value)


async def test_a_role_that_may_only_use_the_tables_can_start(
    empty_database_url: str, stranger: str, tmp_path: Path
) -> None:
    async with await connect(empty_database_url) as conn:
        await install(conn)
        grant = sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {}")
        await conn.execute(grant.format(sql.Identifier(stranger)))
        await conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(stranger)))
        assert await install(conn, change_notify=True) == UP_TO_DATE
        with pytest.raises(SchemaError, match="the app wants 'off', and this role may not change that"):
            await install(conn, notify="off", change_notify=True)
        (tmp_path / f"{SCHEMA_VERSION + 1:04d}_next.sql").write_text("ALTER TABLE horsies_tasks ADD COLUMN note text")
        needs = rf"are of version {SCHEMA_VERSION}, this code needs version {SCHEMA_VERSION + 1}, and this role may not"
        with pytest.raises(SchemaError, match=needs) as caught:
            await install(conn, release=Release(SCHEMA_VERSION + 1, 1, tmp_path))
        assert "let their owner run `horsies init-db`" in (caught.value.help_text or "")
