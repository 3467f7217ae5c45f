"""Opening a connection that nobody wants any more, and one to a database with a style of its own."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.db.connections import connect, drain_pending_connects
from horsies.core.models.broker import PostgresConfig
from tests.factories import given_task
from tests.support import PATIENCE, eventually, eventually_sync

NAME = "opened for nobody"


async def test_a_connection_whose_opener_was_cancelled_is_closed(database_url: str, db: AsyncConnection) -> None:
    config = PostgresConfig(database_url=database_url)
    for number in range(150):
        opening = asyncio.create_task(connect(config, name=NAME))
        await asyncio.sleep(number * 0.0001)  # at every stage of its way
        opening.cancel()
        done, _ = await asyncio.wait([opening])
        for one in done:
            if not one.cancelled():
                await one.result().close()

    async def nobody_is_left() -> bool:
        found = await db.execute("SELECT FROM pg_stat_activity WHERE application_name = %s", [NAME])
        return await found.fetchone() is None

    await eventually(nobody_is_left)


def test_who_ends_a_loop_lets_openings_end_first(database_url: str) -> None:
    """Else the loop is gone before they are, and the server keeps their sessions."""
    config = PostgresConfig(database_url=database_url)

    async def give_up_at_once(after_s: float) -> None:
        opening = asyncio.create_task(connect(config, name=NAME))
        await asyncio.sleep(after_s)
        opening.cancel()
        await asyncio.wait([opening])
        await drain_pending_connects(PATIENCE)

    for number in range(20):
        asyncio.run(give_up_at_once(number * 0.0005))
    with psycopg.connect(database_url) as conn:
        query = "SELECT FROM pg_stat_activity WHERE application_name = %s"
        eventually_sync(lambda: conn.execute(query, [NAME]).fetchone() is None)


@pytest.mark.parametrize("style", ["datestyle = 'German'", "datestyle = 'Postgres, MDY'", "intervalstyle = 'iso_8601'"])
async def test_d01_dates_are_read_whatever_the_style_of_the_database(
    database_url: str, db: AsyncConnection, style: str
) -> None:
    await db.execute(SQL("ALTER DATABASE {} SET {}").format(Identifier(db.info.dbname), SQL(style)))
    overdue = await given_task(db, good_until="2020-01-31")
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    try:
        [found] = (await broker.get_expired_tasks()).unwrap()
    finally:
        await broker.close_async()
    assert found["id"] == overdue and found["good_until"].year == 2020 and found["expired_for"].days > 365
