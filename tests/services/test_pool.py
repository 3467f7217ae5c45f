"""The pool (T-10, T-11): how many connections, which of them are believed, and what is said when there is none."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.db import pool as pool_module
from horsies.core.db.connections import connect, make_pool
from horsies.core.db.failures import describe, is_transient
from horsies.core.db.pool import Pool, PoolTimeout
from horsies.core.errors import ConfigurationError
from horsies.core.models.broker import PostgresConfig
from tests.support import eventually


@contextlib.asynccontextmanager
async def a_pool(url: str, *, keep: int = 2, most: int = 4, **settings: object) -> AsyncIterator[Pool]:
    pool = make_pool(PostgresConfig(database_url=url, **settings), min_size=keep, max_size=most, name="pool test")
    try:
        yield pool
    finally:
        await pool.close()


async def backends(db: AsyncConnection) -> list[int]:
    rows = await db.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'pool test' ORDER BY 1")
    return [pid for (pid,) in await rows.fetchall()]


async def backend_of(pool: Pool) -> int:
    async with pool.connection() as conn:
        return conn.info.backend_pid


async def test_t10_no_more_than_max_size_and_the_rest_wait_their_turn(database_url: str, db: AsyncConnection) -> None:
    async with a_pool(database_url, keep=2, most=4) as pool:

        async def one() -> int:
            async with pool.connection() as conn:
                row = await (await conn.execute("SELECT 1 FROM pg_sleep(0.01)")).fetchone()
                assert pool.size <= 4
                return int(row[0])

        assert sum(await asyncio.gather(*(one() for _ in range(50)))) == 50
        assert pool.size == 2  # the overflow is closed when nobody needs it
        await eventually(lambda: _length(backends(db), 2))


async def test_t10_overflow_lingers_while_it_is_needed_and_then_goes(database_url: str, db: AsyncConnection) -> None:
    config = PostgresConfig(database_url=database_url)
    pool = make_pool(config, min_size=1, max_size=3, linger=0.3, name="pool test")
    try:
        async with pool.connection(), pool.connection():
            assert not pool.has_idle
            first = await backends(db)
        async with pool.connection(), pool.connection():
            assert await backends(db) == first  # no new ones
        await eventually(lambda: _length(backends(db), 1))
        assert pool.has_idle and pool.size == 1
    finally:
        await pool.close()


async def _length(found: object, expected: int) -> bool:
    return len(await found) == expected  # type: ignore[misc]


async def test_t10_pool_timeout_says_that_the_pool_is_busy(database_url: str) -> None:
    async with a_pool(database_url, most=1) as pool, pool.connection():
        with pytest.raises(PoolTimeout, match=r"all 1 connections of the pool 'pool test' stayed busy for 0\.05 s"):
            await pool.getconn(timeout=0.05)


async def test_t11_a_connection_that_the_server_closed_is_replaced_unseen(
    database_url: str, db: AsyncConnection
) -> None:
    async with a_pool(database_url) as pool:
        before = await backend_of(pool)
        await db.execute("SELECT pg_terminate_backend(%s)", [before])
        await eventually(lambda: _length(backends(db), 0))
        assert await backend_of(pool) != before


async def test_t11_a_goodbye_is_believed_before_the_stream_ends(database_url: str) -> None:
    """A server that is told to end a session says so, and closes the stream a moment later; here, when it is asked."""
    async with a_pool(database_url) as pool:
        before = await backend_of(pool)
        ours, server = socket.socketpair()
        with ours:
            os.dup2(ours.fileno(), pool._idle[0].conn.pgconn.socket)
        server.setblocking(False)
        goodbye = b"SFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
        server.sendall(b"E" + struct.pack("!i", 4 + len(goodbye)) + goodbye)

        async def hang_up() -> None:
            with server:
                await asyncio.get_running_loop().sock_recv(server, 1)

        ending = asyncio.create_task(hang_up())
        assert await backend_of(pool) != before
        await ending


async def test_t10_pre_ping_asks_a_connection_that_was_idle_for_long(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that vanished silently cannot be seen on the socket; here: a connection that is broken in this process."""
    async with a_pool(database_url) as pool:
        before = await backend_of(pool)
        broken = pool._idle[0].conn
        with socket.socket(fileno=socket.dup(broken.pgconn.socket)) as wire:
            wire.shutdown(socket.SHUT_WR)
            monkeypatch.setattr(pool_module, "_is_quiet", lambda conn: True)
            monkeypatch.setattr(pool_module, "TRUSTED_IDLE_SECONDS", 0.0)
            assert await backend_of(pool) != before


async def test_t10_pool_recycle_replaces_old_connections(database_url: str) -> None:
    async with a_pool(database_url) as pool:
        before = await backend_of(pool)
        pool._idle[0].expires = 0.0
        assert await backend_of(pool) != before


async def test_t10_a_transaction_left_open_does_not_reach_the_next_user(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_pool(database_url, most=1) as pool:
        async with pool.connection() as conn:
            await conn.execute("BEGIN")
        async with pool.connection() as conn:
            assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert "left open" in caplog.text


async def test_t11_a_cancelled_user_gives_its_place_back(database_url: str) -> None:
    async with a_pool(database_url, most=1) as pool:
        async with pool.connection():
            impatient = [asyncio.create_task(pool.getconn()) for _ in range(3)]
            await eventually(lambda: len(pool._waiting) == 3)
        for task in impatient[:1]:  # has just been served
            task.cancel()
        done = await asyncio.gather(*impatient[:1], return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError)
        second = await asyncio.wait_for(impatient[1], 5)
        await pool.putconn(second)
        await pool.putconn(await asyncio.wait_for(impatient[2], 5))
        assert pool.size == 1


async def test_t11_a_statement_cancelled_midway_leaves_a_usable_pool(database_url: str, db: AsyncConnection) -> None:
    """Midway: the server is at it. A cancellation that comes sooner finds nothing to cancel there."""

    async def is_sleeping() -> bool:
        found = await db.execute(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        )
        return await found.fetchone() is not None

    async with a_pool(database_url, most=1) as pool:

        async def slow() -> None:
            async with pool.connection() as conn:
                await conn.execute("SELECT pg_sleep(30)")

        task = asyncio.create_task(slow())
        await eventually(is_sleeping)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with pool.connection(timeout=10) as conn:
            assert await (await conn.execute("SELECT 1")).fetchone() == (1,)


def refusing_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_t11_an_unreachable_server_is_reported_at_once_in_its_own_words() -> None:
    url = f"postgresql://someone:sesame@127.0.0.1:{refusing_port()}/x"
    async with a_pool(url, most=2) as pool:
        everyone = await asyncio.wait_for(
            asyncio.gather(*(pool.getconn() for _ in range(8)), return_exceptions=True), timeout=10
        )
        assert pool.size == 0
    for problem in everyone:
        assert isinstance(problem, psycopg.OperationalError)
        assert "Connection refused" in describe(problem)
        assert "sesame" not in describe(problem)
        assert is_transient(problem)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dbname": "no_such_database"}, 'database "no_such_database" does not exist'),
        ({"user": "no_such_user"}, "no_such_user"),
    ],
)
async def test_t11_a_refused_login_is_not_worth_a_retry(database_url: str, change: dict[str, str], words: str) -> None:
    # A server that asks for the password gets the right one: it would not look for the database before.
    parts = {"password": "sesame"} | psycopg.conninfo.conninfo_to_dict(database_url) | change
    url = "postgresql:///?" + "&".join(f"{key}={value}" for key, value in parts.items())
    async with a_pool(url) as pool:
        with pytest.raises(psycopg.OperationalError) as refused:
            await pool.getconn()
    assert words in describe(refused.value)
    assert str(parts["password"]) not in describe(refused.value)
    assert not is_transient(refused.value)


async def test_t11_a_server_that_never_answers_costs_no_more_than_the_timeout() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        async with a_pool(f"postgresql://u@127.0.0.1:{mute.getsockname()[1]}/x") as pool:
            with pytest.raises(PoolTimeout, match=r"did not answer within 0\.2 s"):
                await asyncio.wait_for(pool.getconn(timeout=0.2), timeout=10)
            assert pool.size == 0


async def test_t10_a_password_with_an_unescaped_at_sign_is_refused_and_not_echoed() -> None:
    with pytest.raises(ConfigurationError, match="percent-encoded") as refused:
        PostgresConfig(database_url="postgresql://u:open@sesame@localhost/x")
    assert "sesame" not in str(refused.value.message)


async def test_t10_echo_logs_statements_without_their_parameters(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "horsies.sql")
    async with a_pool(database_url, echo=True) as pool, pool.connection() as conn:
        await conn.execute("SELECT %s::text", ["sesame"])
    assert "SELECT %s::text" in caplog.text
    assert "sesame" not in caplog.text


@pytest.mark.parametrize("behind_pooler", [False, True])
async def test_t10_prepared_statements_are_off_behind_a_transaction_pooler(
    database_url: str, behind_pooler: bool
) -> None:
    config = PostgresConfig(
        database_url=database_url, session_database_url=database_url, pgbouncer_transaction_mode=behind_pooler
    )
    conn = await connect(config)
    try:
        for _ in range(2):
            await conn.execute("SELECT 1", prepare=True)
        row = await (await conn.execute("SELECT count(*) FROM pg_prepared_statements")).fetchone()
        assert row == (0 if behind_pooler else 1,)
    finally:
        await conn.close()


async def test_t10_keepalives_and_the_name_are_passed_to_the_server(database_url: str) -> None:
    config = PostgresConfig(database_url=database_url, tcp_keepalives_idle=17, tcp_user_timeout_ms=1234)
    conn = await connect(config, name="somebody")
    try:
        given = {option.keyword: option.val for option in conn.pgconn.info}
        assert (given[b"keepalives_idle"], given[b"tcp_user_timeout"]) == (b"17", b"1234")
        assert (given[b"application_name"], given[b"connect_timeout"]) == (b"somebody", b"30")
        assert conn.autocommit
    finally:
        await conn.close()
