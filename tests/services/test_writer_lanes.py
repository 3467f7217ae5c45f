"""A send is never left lying: not even one that comes when the last statements have just come to their end."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.sending import TaskSendPayload
from horsies.core.store.sends import Send
from tests.factories import count_tasks
from tests.support import eventually

BLOCKED = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def broker(database_url: str) -> Iterator[PostgresBroker]:
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    yield broker
    broker.close()


async def test_a_send_that_follows_two_that_ended_in_the_same_moment_is_written(
    broker: PostgresBroker, database_url: str, db: AsyncConnection
) -> None:
    """Both statements are answered while the loop looks away. Whoever is awake first sends once more, before the end of
    either has been noted."""
    followed: list[Send] = []

    async def send() -> None:
        await broker.hub.writer.write(a_send())

    async def send_and_the_first_once_more() -> None:
        await send()
        if not followed:
            followed.append(a_send())
            await broker.hub.writer.write(followed[0])

    with psycopg.connect(database_url) as locking:
        for what in (send, send_and_the_first_once_more):  # once to have two connections that are used to the statement
            locking.execute("LOCK TABLE horsies_tasks IN EXCLUSIVE MODE")
            sending = []
            for count in (1, 2):
                sending.append(asyncio.create_task(broker.bridge.call(what)))
                await eventually(lambda count=count: _blocked(db, count))  # type: ignore[misc]
            await broker.bridge.call(lambda: _look_away(locking))
            await asyncio.wait_for(asyncio.gather(*sending), 15)
    assert await count_tasks(db) == 5


def a_send() -> Send:
    payload = TaskSendPayload("t", "default", 100, None, None, datetime.now(UTC), None, None, None, "sha")
    return Send(str(uuid.uuid4()), payload)


async def _blocked(db: AsyncConnection, count: int) -> bool:
    return (await db.execute(BLOCKED)).rowcount == count


async def _look_away(locking: psycopg.Connection) -> None:
    locking.rollback()
    time.sleep(0.3)  # noqa: ASYNC251 - it is the loop that shall do nothing meanwhile
