"""Statements that are sent together: how often the event loop is asked for them, and that nothing gets stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from horsies.core.db import connect, in_one_go
from horsies.core.models.broker import PostgresConfig

STATEMENTS = 20
MB = "x" * (1 << 20)


@contextmanager
def asked(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What this method of the event loop is called with meanwhile."""
    loop, calls = asyncio.get_running_loop(), []
    method = getattr(loop, name)

    def noted(*args: Any) -> None:
        calls.append(args)
        method(*args)

    with monkeypatch.context() as patch:
        patch.setattr(loop, name, noted)
        yield calls


async def turns(conn: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the loop was asked to watch the socket for writing."""
    with asked("add_writer", monkeypatch) as calls:
        async with conn.pipeline(), conn.transaction():
            cursors = [await conn.execute("SELECT %s::int", [nth]) for nth in range(STATEMENTS)]
        assert [await cursor.fetchone() for cursor in cursors] == [(nth,) for nth in range(STATEMENTS)]
    return len(calls)


async def test_statements_that_are_sent_together_take_no_turn_of_the_loop_each(
    module_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        await AsyncConnection.connect(module_url, autocommit=True) as plain,
        await connect(PostgresConfig(database_url=module_url)) as ours,
    ):
        assert await turns(plain, monkeypatch) >= STATEMENTS  # else psycopg itself has learnt it, and ours can go
        assert await turns(ours, monkeypatch) <= 2


async def test_more_than_the_sockets_can_hold_goes_through_in_both_directions(module_url: str) -> None:
    """The server stops reading when nobody takes its answers, so that they must be taken while sending."""
    async with await connect(PostgresConfig(database_url=module_url)) as conn:
        async with asyncio.timeout(60), conn.pipeline():
            cursors = [await conn.execute("SELECT %s::text, %s::int", [MB, nth]) for nth in range(40)]
        rows = [await cursor.fetchone() for cursor in cursors]
    assert [(len(row[0]), row[1]) for row in rows if row] == [(len(MB), nth) for nth in range(40)]


async def test_a_session_that_ends_meanwhile_is_an_error_at_once(module_url: str) -> None:
    async with await connect(PostgresConfig(database_url=module_url)) as conn:
        with pytest.raises(psycopg.OperationalError):
            async with asyncio.timeout(30), conn.pipeline():
                for _ in range(STATEMENTS):
                    await conn.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        assert conn.broken


async def test_a_cancelled_pipeline_leaves_a_session_that_can_be_closed(module_url: str) -> None:
    async with await connect(PostgresConfig(database_url=module_url)) as conn:

        async def slow() -> None:
            async with conn.pipeline():
                await conn.execute("SELECT 1")
                await conn.execute("SELECT pg_sleep(60)")

        running = asyncio.create_task(slow())
        await asyncio.sleep(0)
        done, _ = await asyncio.wait([running], timeout=0.3)
        assert not done
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(30):
                await running


async def test_a_transaction_in_one_go_is_written_whole_or_not_at_all(database_url: str) -> None:
    async with await connect(PostgresConfig(database_url=database_url)) as conn:
        await conn.execute("CREATE TABLE written (nth int PRIMARY KEY)")

        async def write(*numbers: int) -> None:
            async with in_one_go(conn):
                for number in numbers:
                    await conn.execute("INSERT INTO written VALUES (%s)", [number])
                if numbers[-1] == 0:
                    raise LookupError

        await write(1, 2)
        with pytest.raises(psycopg.errors.UniqueViolation):  # heard of beside the commit
            await write(3, 1)
        with pytest.raises(LookupError):
            await write(4, 0)
        assert conn.pgconn.transaction_status == TransactionStatus.IDLE
        await write(5)
        assert await (await conn.execute("SELECT nth FROM written ORDER BY 1")).fetchall() == [(1,), (2,), (5,)]


async def test_a_transaction_in_one_go_refuses_one_inside_it(module_url: str) -> None:
    """psycopg would take the inner one for the outer one, and commit at its end."""
    async with await connect(PostgresConfig(database_url=module_url)) as conn:
        with pytest.raises(RuntimeError, match="in one go"):
            async with in_one_go(conn):
                conn.transaction()
        async with conn.transaction(), in_one_go(conn):
            await conn.execute("SELECT 1")  # inside another one it is a savepoint


async def test_a_transaction_in_one_go_waits_once(module_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await connect(PostgresConfig(database_url=module_url)) as conn:
        with asked("add_reader", monkeypatch) as waits:
            async with in_one_go(conn):
                await conn.execute("SELECT pg_sleep(0.2)")  # so that no reply can be there already
                assert waits == []
                await conn.execute("SELECT 1")
        assert 1 <= len(waits) <= 3  # the replies may come in two or three parts
