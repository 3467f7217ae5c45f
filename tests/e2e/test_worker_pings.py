"""What a role that may only connect can do to a worker by notifications: very little."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from psycopg import AsyncConnection, sql

from tests.role_support import a_role, as_role
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = pytest.mark.e2e

FLOOD = 10_000


@contextlib.asynccontextmanager
async def hearing(url: str, channel: str) -> AsyncIterator[list[str]]:
    """All payloads on a channel since now."""
    heard: list[str] = []

    async def read() -> None:
        async for notice in conn.notifies():
            heard.append(notice.payload)

    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        await conn.execute(f"LISTEN {channel}".encode())
        reading = asyncio.create_task(read())
        try:
            yield heard
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading


async def flood(url: str, channel: str, payload: str) -> None:
    """10,000 notifications in one transaction; `%` in the payload is the number of each."""
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        query = "SELECT pg_notify(%s, replace(%s, '%%', i::text)) FROM generate_series(1, %s) AS i"
        await conn.execute(query, [channel, payload, FLOOD])


async def reports_of_loss(url: str, task_id: str) -> None:
    """10,000 transactions, because equal notifications of one transaction are sent once."""
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        loop = "DO $$ BEGIN FOR i IN 1..{} LOOP PERFORM pg_notify('horsies_claim_lost', {}); COMMIT; END LOOP; END $$"
        await conn.execute(sql.SQL(loop).format(sql.Literal(FLOOD), sql.Literal(task_id)))


async def transactions(url: str) -> int:
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        query = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        (count,) = await (await conn.execute(query)).fetchone() or (0,)
        return int(count)


async def test_d61_a_flood_of_pings_is_answered_together_and_within_bounds(
    basic: Any, rows: Rows, database_url: str
) -> None:
    with a_role(database_url) as stranger:
        async with running_worker(basic.app) as worker, hearing(database_url, "horsies_worker_pong") as pongs:
            await rows.until((await basic.add.send_async(1, 2)).unwrap().task_id, "COMPLETED")
            await flood(as_role(database_url, stranger), "horsies_worker_ping", '{"id": "%"}')
            task = (await basic.add.send_async(2, 3)).unwrap()
            await rows.until(task.task_id, "COMPLETED")

            async def answered() -> bool:
                [*found] = (await basic.app.ping_workers_async(timeout_seconds=1, min_responses=1)).unwrap()
                return [pong.worker_id for pong in found] == [worker.worker_id]

            await eventually(answered, what="an answer to a real ping after the flood")
    assert 0 < len(pongs) < FLOOD / 20, f"{len(pongs)} answers to {FLOOD} pings"


async def test_d61_what_is_no_ping_is_ignored(basic: Any, database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    junk = ["", "x", "null", "[]", "{}", "[" * 7_000, '{"id": ["a"]}', '{"id": {}}', '{"id": 1e999}', '{"id": ""}']
    junk += ['{"id": "a", "target": ["x"]}', '{"id": "a", "target": "x"}', json.dumps({"id": "a" * 7_000})]
    async with running_worker(basic.app) as worker, hearing(database_url, "horsies_worker_pong") as pongs:
        await eventually(lambda: worker._listener.connected, what="the worker's listener")
        async with await AsyncConnection.connect(database_url, autocommit=True) as conn:
            for payload in (*junk, json.dumps({"id": "good", "target": worker.worker_id})):
                await conn.execute("SELECT pg_notify('horsies_worker_ping', %s)", [payload])
        await eventually(lambda: pongs, what="the answer to the real one")
    assert [json.loads(pong)["id"] for pong in pongs] == ["good"]
    assert "a notification callback failed" not in caplog.text


async def test_d61_a_flood_of_reports_that_a_task_is_lost_costs_few_statements(
    basic: Any, rows: Rows, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Every role may listen to the ids of tasks. A real cancellation is noticed all the same, after the flood."""
    with a_role(database_url) as stranger:
        async with running_worker(basic.app) as worker:
            handle = (await basic.nap.send_async(60.0)).unwrap()
            await rows.until(handle.task_id, "RUNNING")
            before = await transactions(database_url)
            await reports_of_loss(as_role(database_url, stranger), handle.task_id)
            await eventually(lambda: worker._listener.heard >= FLOOD, what="the flood")
            [flooded] = await rows.all("SELECT clock_timestamp() AS at")
            beats = "SELECT FROM horsies_heartbeats WHERE role = 'runner' AND sent_at > %s"
            beat = "a heartbeat, which waits for the checks"
            await eventually(lambda: rows.all(beats, flooded["at"]), 60, every=0.5, what=beat)  # each look counts too
            (await handle.cancel_async(include_running=True)).unwrap()
            await eventually(lambda: not worker._in_hand, what="the end of the cancelled task")
            await rows.until((await basic.add.send_async(2, 3)).unwrap().task_id, "COMPLETED")
            # The heartbeat that was waited for has reported what its session did before. At its end the listener would
            # report too how often it has read notifications, which are transactions for the server.
            after = await transactions(database_url)
    assert not [line for line in caplog.messages if "database error" in line], "heartbeats waited behind the checks"
    assert after - before - FLOOD < FLOOD / 10
