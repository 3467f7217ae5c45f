"""Opening a connection that nobody wants any more."""

from __future__ import annotations

import asyncio

import psycopg
from psycopg import AsyncConnection

from horsies.core.db.connections import connect, drain_pending_connects
from horsies.core.models.broker import PostgresConfig
from tests.support import eventually, eventually_sync

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
        await drain_pending_connects()

    for number in range(20):
        asyncio.run(give_up_at_once(number * 0.0005))
    with psycopg.connect(database_url) as conn:
        query = "SELECT FROM pg_stat_activity WHERE application_name = %s"
        eventually_sync(lambda: conn.execute(query, [NAME]).fetchone() is None)
