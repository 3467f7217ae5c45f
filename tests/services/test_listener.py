"""The LISTEN connection (T-11): nothing is missed while connected; the owner learns when something may have been."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.db.listener import Backoff, Listener
from tests.support import eventually

SOON = Backoff(initial=0.01, maximum=0.05)


@contextlib.asynccontextmanager
async def listening(url: str, *channels: str, **settings: Any) -> AsyncIterator[tuple[Listener, list[str]]]:
    """A started listener and what it heard."""
    heard: list[str] = []
    listener = Listener(lambda: session(url), backoff=SOON, **settings)
    for channel in channels:
        listener.subscribe(channel, heard.append)
    await listener.start()
    try:
        yield listener, heard
    finally:
        await listener.stop()


async def session(url: str) -> AsyncConnection:
    return await AsyncConnection.connect(url, autocommit=True, application_name="listener test")


async def notify(db: AsyncConnection, channel: str, payload: str) -> None:
    await db.execute("SELECT pg_notify(%s, %s)", [channel, payload])


async def kill_sessions(db: AsyncConnection) -> int:
    killed = await db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'listener test'"
    )
    return len(await killed.fetchall())


async def test_t11_notifications_reach_the_callbacks_of_their_channel(database_url: str, db: AsyncConnection) -> None:
    async with listening(database_url, "a") as (listener, heard):
        assert listener.connected
        await db.execute("SELECT pg_notify('a', n::text) FROM generate_series(1, 2000) n")
        await notify(db, "b", "not for us")
        await eventually(lambda: len(heard) == 2000)
        assert heard == [str(n) for n in range(1, 2001)]


async def test_t11_channels_can_come_and_go(database_url: str, db: AsyncConnection) -> None:
    async with listening(database_url, "a") as (listener, heard):
        listener.subscribe('B "quoted"', heard.append)
        await listener.in_step()
        await notify(db, 'B "quoted"', "one")
        await eventually(lambda: heard == ["one"])
        listener.unsubscribe('B "quoted"', heard.append)
        await listener.in_step()
        await notify(db, 'B "quoted"', "two")
        await notify(db, "a", "three")
        await eventually(lambda: heard == ["one", "three"])


async def test_t11_a_lost_session_is_replaced_and_listens_again(
    database_url: str, db: AsyncConnection, caplog: pytest.LogCaptureFixture
) -> None:
    sessions: list[str] = []
    async with listening(database_url, "a", "b") as (listener, heard):
        listener.on_reconnect(lambda: sessions.append("again"))
        assert await kill_sessions(db) == 1
        await eventually(lambda: sessions == ["again"])
        assert listener.connected
        await notify(db, "a", "x")
        await notify(db, "b", "y")
        await eventually(lambda: heard == ["x", "y"])
    assert [r.levelno for r in caplog.records if r.name == "horsies.listener"] == [logging.WARNING]


async def test_t11_listen_comes_before_the_owner_is_told_to_look(database_url: str, db: AsyncConnection) -> None:
    """Whatever happens after `on_reconnect` is heard: LISTEN is in effect when it is called."""
    async with listening(database_url, "a") as (listener, heard):
        seen: list[list[str]] = []

        def look() -> None:
            with psycopg.connect(database_url, autocommit=True) as other:
                rows = other.execute(
                    "SELECT query FROM pg_stat_activity WHERE application_name = 'listener test' AND pid > 0"
                ).fetchall()
                seen.append([query for (query,) in rows])
                other.execute("NOTIFY a, 'after'")

        listener.on_reconnect(look)
        await kill_sessions(db)
        await eventually(lambda: heard == ["after"])
        assert ['LISTEN "a"'] in seen


async def test_t11_each_session_is_prepared_before_it_listens(database_url: str, db: AsyncConnection) -> None:
    order: list[str] = []
    listener = Listener(lambda: session(database_url), backoff=SOON)

    async def take_lock(conn: AsyncConnection) -> None:
        await conn.execute("SELECT pg_advisory_lock_shared(4711)")
        order.append("session")

    listener.on_session(take_lock)
    listener.on_reconnect(lambda: order.append("listening"))
    listener.subscribe("a", lambda payload: None)
    await listener.start()
    try:
        await kill_sessions(db)
        await eventually(lambda: order == ["session", "listening"] * 2)
        held = await db.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711")
        assert await held.fetchone() == (1,)
    finally:
        await listener.stop()


async def test_t11_a_server_that_is_away_is_tried_again_with_growing_pauses(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "horsies.listener")
    attempts = 0

    async def at_the_fourth_try() -> AsyncConnection:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            raise psycopg.OperationalError("connection refused")
        return await session(database_url)

    listener = Listener(at_the_fourth_try, backoff=SOON)
    await listener.start()
    try:
        assert not listener.connected
        assert "connection refused" in str(listener.last_error)
        await eventually(lambda: listener.connected)
        assert attempts == 4
        levels = [record.levelno for record in caplog.records]
        assert levels.count(logging.WARNING) == 1  # one line for an outage, however long
    finally:
        await listener.stop()


async def test_t11_silence_is_checked_and_a_mute_server_is_given_up(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first session's wire is swapped for one that leads nowhere: nothing is closed, and nothing ever comes."""
    nowhere, held = socket.socketpair()
    spare: list[int] = []
    sessions = 0

    async def first_goes_mute() -> AsyncConnection:
        nonlocal sessions
        conn = await session(database_url)
        sessions += 1
        if sessions == 1:
            spare.append(os.dup(conn.pgconn.socket))
            os.dup2(nowhere.fileno(), conn.pgconn.socket)
        elif spare:
            os.close(spare.pop())
        return conn

    listener = Listener(first_goes_mute, backoff=SOON, keepalive=0.05, keepalive_timeout=0.1)
    with nowhere, held:
        await listener.start()
        try:
            await eventually(lambda: sessions > 1 and listener.connected, what="giving up the mute session")
        finally:
            await listener.stop()
    assert "no answer" in caplog.text


async def test_t11_a_callback_that_raises_costs_the_others_nothing(
    database_url: str, db: AsyncConnection, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(payload: str) -> None:
        raise RuntimeError("not my day")

    async with listening(database_url) as (listener, heard):
        listener.subscribe("a", broken)
        listener.subscribe("a", heard.append)
        await listener.in_step()
        await notify(db, "a", "x")
        await eventually(lambda: heard == ["x"])
        assert "not my day" in caplog.text
        caplog.clear()


async def test_t11_notifications_that_come_with_the_answer_to_a_statement_are_heard(
    database_url: str, db: AsyncConnection
) -> None:
    """psycopg reads the socket while the keepalive statement runs; it must not swallow what rings then."""
    async with listening(database_url, "a", keepalive=0.001) as (_, heard):
        for n in range(300):
            await notify(db, "a", str(n))
        await eventually(lambda: len(heard) == 300)


async def test_t11_stopping_closes_the_session(database_url: str, db: AsyncConnection) -> None:
    async with listening(database_url, "a"):
        pass
    await eventually(lambda: _none_left(db))


async def _none_left(db: AsyncConnection) -> bool:
    left = await db.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'listener test'")
    return await left.fetchone() == (0,)


async def test_w60_the_pause_doubles_up_to_its_cap() -> None:
    exact = Backoff(initial=0.5, maximum=30.0, jitter=0.0)
    assert [exact.delay(n) for n in (1, 2, 3, 7, 8, 5000)] == [0.5, 1.0, 2.0, 30.0, 30.0, 30.0]
    loose = [Backoff(initial=1.0, maximum=1.0).delay(1) for _ in range(1000)]
    assert 0.75 <= min(loose) < 0.85 < 1.15 < max(loose) <= 1.25
    await asyncio.sleep(0)
