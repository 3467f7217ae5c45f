"""Opening a connection that nobody wants any more."""

from __future__ import annotations

import asyncio

from psycopg import AsyncConnection

from horsies.core.brokers.connections import connect
from horsies.core.models.broker import PostgresConfig
from tests.support import eventually

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
