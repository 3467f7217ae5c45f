"""The terminal dashboard without its database (M-80): it says so, keeps what it knows, and comes back by itself."""

from __future__ import annotations

import asyncio

import pytest
from psycopg import AsyncConnection, sql

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.schema.install import install
from horsies.tui import polls
from tests.factories import given_task
from tests.network_support import network
from tests.services.tui.support import watching


async def test_m80_a_database_that_goes_away_and_comes_back(database_url: str, db: AsyncConnection) -> None:
    await given_task(db, queue_name="mail")
    async with network(database_url) as line:
        broker = PostgresBroker(PostgresConfig(database_url=line.url))
        broker.only_look()
        async with watching(broker) as viewer:
            await viewer.sees("mail", without=("No news from the database",))
            line.cut()
            await viewer.sees("No news from the database for", "old; trying again", "mail")
            await viewer.press("4")
            await viewer.sees("[4 Workflows]", "nothing is known yet", "No news from the database")
            await viewer.press("1")
            await viewer.sees("mail", "No news from the database"), "keys work, and the last values are shown"
            await given_task(db, queue_name="reports")
            line.mend()
            await viewer.sees("mail", "reports", without=("No news from the database",))
        await broker.close_async()


async def test_m80_a_database_that_says_nothing(
    database_url: str, db: AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polls, "SLOW_S", 0.2)
    await given_task(db, queue_name="mail")
    async with network(database_url) as line:
        broker = PostgresBroker(PostgresConfig(database_url=line.url))
        broker.only_look()
        async with watching(broker) as viewer:
            await viewer.sees("mail")
            line.freeze()
            await viewer.sees("No news from the database for", "mail")
            await viewer.press("question_mark")
            await viewer.sees("Dashboard › help"), "keys do not wait for it"
            await viewer.press("escape")
            line.mend()
            await viewer.sees("mail", without=("No news from the database",))
        await broker.close_async()


async def test_m80_a_database_without_tables_is_said_until_it_has_them(empty_database_url: str) -> None:
    broker = PostgresBroker(PostgresConfig(database_url=empty_database_url))
    broker.only_look()
    async with watching(broker) as viewer:
        await viewer.sees("there are no horsies tables", "nothing is known yet")
        for key in "2345":
            await viewer.press(key)
            await viewer.sees(f"[{key} ", "nothing is known yet")
        async with await AsyncConnection.connect(empty_database_url) as conn:
            await install(conn)
        await viewer.press("1")
        await viewer.sees("Capacity", without=("there are no horsies tables",))
    await broker.close_async()


async def test_m80_it_only_reads(database_url: str, db: AsyncConnection) -> None:
    """Also as a role that may not write, and without tables being made."""
    await given_task(db, queue_name="mail")
    name = sql.Identifier(db.info.dbname)
    await db.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    broker.only_look()
    async with watching(broker) as viewer:
        for key, said in (
            ("1", "mail"),
            ("2", "no worker"),
            ("3", "not claimed"),
            ("4", "no workflows"),
            ("5", "none"),
        ):
            await viewer.press(key)
            await viewer.sees(said, without=("No news",))
    await broker.close_async()


async def test_m80_no_query_is_left_when_it_ends(database_url: str, db: AsyncConnection) -> None:
    async with network(database_url) as line:
        broker = PostgresBroker(PostgresConfig(database_url=line.url))
        broker.only_look()
        async with watching(broker) as viewer:
            await viewer.sees("Capacity")
            line.freeze()
            await viewer.press("r")
        assert [task.get_name() for task in asyncio.all_tasks() if "tui" in task.get_name()] == []
        line.mend()
        await broker.close_async()


async def test_m81_an_answer_that_comes_while_it_ends_is_not_drawn(database_url: str) -> None:
    """Its rows are gone before its timers are: a draw in between ended the program with a traceback."""
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    broker.only_look()
    async with watching(broker) as viewer:
        await viewer.sees("Workflows")
    viewer.app.draw()
    await broker.close_async()
