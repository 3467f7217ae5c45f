"""A PgBouncer that the configuration does not mention: named in transaction mode, adapted to in session mode.

`refuses`: as PgBouncer does by itself, it takes no connection with options. `ignores`: it is configured to take and
ignore them, so that only the missing session shows that it is there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from horsies import PostgresConfig
from horsies.core.db import connect, make_pool
from tests.app_support import an_app, define_add
from tests.e2e.cli_support import run
from tests.pooler.conftest import Route
from tests.pooler.support import POOLED_APP, ROOT, PgBouncer

HABITS: dict[str, dict[str, object]] = {"refuses": {}, "ignores": {"ignore_startup_parameters": "options"}}
NAMED = "database_url leads to a connection pooler in transaction mode"
REMEDY = "pgbouncer_transaction_mode=True"


@pytest.fixture(params=list(HABITS))
def hidden(request: pytest.FixtureRequest, database_url: str) -> Iterator[Route]:
    """A transaction pooler that is not declared."""
    with PgBouncer(database_url, "transaction", **HABITS[request.param]) as bouncer:
        yield Route(request.param, bouncer, database_url, {}, has_sessions=False)


def test_o02_a_worker_names_the_pooler_and_stops(hidden: Route) -> None:
    with hidden.worker("--processes", "1") as worker:
        code, said = worker.wait(timeout=60)
    assert code == 1
    assert NAMED in said
    assert REMEDY in said
    assert "worker ready" not in said


def test_o02_a_scheduler_names_the_pooler_and_stops(hidden: Route) -> None:
    done = run("scheduler", POOLED_APP, cwd=ROOT, **hidden.env, WITH_SCHEDULE="1")
    assert done.returncode == 1
    assert NAMED in done.stderr
    assert REMEDY in done.stderr


def test_o02_a_send_names_the_pooler_and_cannot_be_retried(hidden: Route) -> None:
    with an_app(hidden.bouncer.url) as app:
        add = define_add(app)
        for result in (add.send(1, 2), add.send_many([(1, 2), (3, 4)])):
            error = result.unwrap_err()
            assert NAMED in error.message
            assert REMEDY in error.message
            assert not error.retryable
    assert asyncio.run(hidden.rows.all("SELECT id FROM horsies_tasks")) == []


def test_o02_the_commands_name_the_pooler(hidden: Route) -> None:
    for command in (["check", POOLED_APP, "--live"], ["queues", POOLED_APP], ["init-db", POOLED_APP]):
        done = run(*command, cwd=ROOT, **hidden.env)
        assert done.returncode != 0
        assert NAMED in done.stderr
        assert REMEDY in done.stderr


def test_o02_a_session_url_that_leads_to_the_pooler_is_named(hidden: Route) -> None:
    pooled = {"session_database_url": hidden.bouncer.url, "pgbouncer_transaction_mode": True}
    with an_app(hidden.bouncer.url, postgres=pooled) as app:
        message = define_add(app).send(1, 2).unwrap_err().message
    assert "session_database_url leads to a connection pooler in transaction mode" in message


async def test_o02_the_pooler_is_noticed_while_others_use_it(database_url: str) -> None:
    """Also if it gives each transaction another session than the one before."""
    with PgBouncer(database_url, "transaction", server_round_robin=1) as bouncer:
        others = [await psycopg.AsyncConnection.connect(bouncer.url, prepare_threshold=None) for _ in range(6)]
        for other in others:
            await other.execute("SELECT 1")  # all are inside a transaction
        for other in others:
            await other.rollback()
        config = PostgresConfig(database_url=bouncer.url)
        for _ in range(5):
            with pytest.raises(ValueError, match=NAMED):
                await connect(config)
        for other in others:
            await other.close()


async def test_o02_a_session_pooler_is_adapted_to(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    for habit in HABITS.values():
        caplog.clear()
        with PgBouncer(database_url, "session", **habit) as bouncer, caplog.at_level(logging.WARNING, "horsies.pool"):
            pool = make_pool(PostgresConfig(database_url=bouncer.url), max_size=4, options="-c lock_timeout=1234")
            for _ in range(2):
                async with pool.connection() as one, pool.connection() as two:
                    for conn in (one, two):
                        row = await (await conn.execute("SHOW lock_timeout")).fetchone()
                        assert row == ("1234ms",)
            await pool.close()
        assert [record.getMessage() for record in caplog.records] == [
            "database_url leads to a pooler in session mode: each connection takes one more statement to open"
        ]


async def test_o02_a_full_session_pooler_is_recognised(database_url: str) -> None:
    """The second connection of the look gets no session at all."""
    with PgBouncer(database_url, "session", default_pool_size=1) as bouncer:
        conn = await connect(PostgresConfig(database_url=bouncer.url))
        assert (await (await conn.execute("SELECT 1")).fetchone()) == (1,)
        await conn.close()


async def test_o02_the_look_is_one_statement_for_a_process(
    empty_database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "horsies.sql"), an_app(empty_database_url, postgres={"echo": True}) as app:
        add = define_add(app)
        await asyncio.gather(*(add.send_async(n, n) for n in range(20)))
        add.send(1, 1).unwrap()
    looks = [record for record in caplog.records if "pg_backend_pid" in record.getMessage()]
    assert len(looks) == 1


def test_o02_options_in_the_url_are_named_if_a_pooler_refuses_them(database_url: str) -> None:
    with PgBouncer(database_url, "transaction") as bouncer:
        url = f"{bouncer.url}?options=-c%20statement_timeout%3D5000"
        with an_app(url, postgres={"pgbouncer_transaction_mode": True}) as app:
            error = define_add(app).send(1, 2).unwrap_err()
    assert "a connection pooler refuses the connection: unsupported startup parameter" in error.message
    assert "ignore_startup_parameters" in error.message
    assert "pgbouncer_transaction_mode" in error.message
    assert not error.retryable


def test_o02_statement_pooling_is_named(database_url: str) -> None:
    with PgBouncer(database_url, "statement") as bouncer:
        env = {"DATABASE_URL": bouncer.url, "BEHIND_POOLER": "1"}
        done = run("init-db", POOLED_APP, cwd=ROOT, **env)
    assert done.returncode == 1
    assert "pool_mode = statement cannot carry transactions" in done.stderr


async def test_o02_a_pooler_that_is_put_in_between_later_is_noticed(database_url: str) -> None:
    """The address stays, and leads to another place: new connections are looked at again."""
    with PgBouncer(database_url, "transaction") as bouncer:
        forward = Forward(database_url)
        await forward.open()
        pool = make_pool(PostgresConfig(database_url=forward.url(bouncer.url)), max_size=2, options="-c jit=off")
        async with pool.connection() as conn:
            await conn.execute("SELECT 1")
            forward.port = bouncer.port
            with pytest.raises(ValueError, match=NAMED):
                async with pool.connection():
                    pass
        await pool.close()
        await forward.close()


class Forward:
    """A port that leads to the server or, as soon as it has a `port`, to there."""

    def __init__(self, database_url: str) -> None:
        self._server = conninfo_to_dict(database_url)
        self._carrying: set[asyncio.Task[None]] = set()
        self.port: int | None = None

    async def open(self) -> None:
        self._listening = await asyncio.start_server(self._connected, "127.0.0.1", 0)

    def url(self, like: str) -> str:
        own = self._listening.sockets[0].getsockname()[1]
        return like.replace(f":{like.rpartition(':')[2].partition('/')[0]}/", f":{own}/")

    async def close(self) -> None:
        """When both ends of each connection have closed it."""
        self._listening.close()
        await asyncio.gather(*self._carrying)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.port is not None:
            there, back = await asyncio.open_connection("127.0.0.1", self.port)
        else:
            place = f"{self._server['host']}/.s.PGSQL.{self._server['port']}"
            there, back = await asyncio.open_unix_connection(place)
        self._carrying |= {asyncio.create_task(carry(reader, back)), asyncio.create_task(carry(there, writer))}


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()
