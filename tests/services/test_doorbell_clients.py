"""Clients that wait (D-60, T-61): the word they leave, the moments in which it is missed, and what it costs others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.db.connections import BY_INDEX
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.tasks import RetrievalCode, TaskResult
from horsies.core.producer import waiter
from horsies.core.sql import load
from horsies.core.store import sends as result_rows
from horsies.core.types.status import TaskStatus
from tests.doorbell_support import change_mode, done, listening, topics
from tests.factories import end_task, given_task
from tests.support import eventually

MANY = 1_200  # more than are looked up at once


@pytest.fixture
def broker(database_url: str) -> Iterator[PostgresBroker]:
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    yield broker
    broker.close()


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiter, "POLL_SECONDS", 3600.0)


async def listens(broker: PostgresBroker, db: AsyncConnection) -> None:
    """The waiter is there and its LISTEN session too, so that no look comes from its beginning any more."""
    first = await given_task(db, status=TaskStatus.COMPLETED, result='{"ok": 0}')
    await broker.get_result_async(first)
    await broker.bridge.call(lambda: broker.hub.listen())
    await broker.get_result_async(first)


async def waiter_of(broker: PostgresBroker) -> Any:
    async def find() -> Any:
        return broker.hub._waiters.get("task_done")

    return await broker.bridge.call(find)


async def has_looked(broker: PostgresBroker, task_id: str) -> bool:
    async def look() -> bool:
        found = broker.hub._waiters.get("task_done")
        places = found._places.get(task_id, []) if found is not None else []
        return broker.hub.listener.connected and bool(places) and all(place.looked for place in places)

    return await broker.bridge.call(look)


@pytest.mark.usefixtures("no_polling")
async def test_d60_an_end_that_looked_before_the_word_was_there_is_found_after_a_pause(
    broker: PostgresBroker, db: AsyncConnection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trigger looks, the client leaves word, the client looks, the end commits: nobody has rung."""
    await change_mode(database_url, "when_waiting")
    await listens(broker, db)
    task_id = await given_task(db)
    committed = asyncio.Event()
    loop = asyncio.get_running_loop()
    look = waiter.TASKS.look
    finds: list[int] = []

    async def look_then_commit(conn: AsyncConnection, ids: list[str]) -> list[Any]:
        rows = await look(conn, ids)
        finds.append(len(rows))
        if len(finds) == 1:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(ending.commit(), loop))
            loop.call_soon_threadsafe(committed.set)
        return rows

    monkeypatch.setattr(await waiter_of(broker), "_subject", replace(waiter.TASKS, look=look_then_commit))
    async with await AsyncConnection.connect(database_url) as ending, listening(database_url) as heard:
        await end_task(ending, task_id, TaskStatus.COMPLETED, '{"ok": 1}')
        waiting = asyncio.create_task(broker.get_result_async(task_id))
        await committed.wait()
        assert await asyncio.wait_for(waiting, 15) == TaskResult(ok=1)
        assert await heard() == []
    assert finds[0] == 0 and sum(finds) == 1


@pytest.mark.usefixtures("no_polling")
async def test_d60_without_any_bell_a_short_task_does_not_take_a_whole_poll(
    broker: PostgresBroker, db: AsyncConnection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In mode `off` the growing pauses are all that comes before the first poll."""
    monkeypatch.setattr(waiter, "PAUSES", (0.02, 0.1, 5.0))
    await change_mode(database_url, "off")
    await listens(broker, db)
    task_id = await given_task(db)
    waiting = asyncio.create_task(broker.get_result_async(task_id))
    await eventually(lambda: has_looked(broker, task_id))
    await end_task(db, task_id, TaskStatus.COMPLETED, '{"ok": 1}')
    assert await asyncio.wait_for(waiting, 15) == TaskResult(ok=1)


@pytest.mark.usefixtures("no_polling")
async def test_d60_a_client_that_waits_for_many_is_rung_once_for_each(
    broker: PostgresBroker, db: AsyncConnection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiter, "PAUSES", ())
    await change_mode(database_url, "when_waiting")
    ids = [f"many-{n:04}" for n in range(MANY)]
    await db.execute("INSERT INTO horsies_tasks (id, task_name) SELECT unnest(%s::text[]), 't'", [ids])
    await given_task(db, id="nobody waits for it")
    async with listening(database_url) as heard:
        waiting = [asyncio.create_task(broker.get_result_async(task_id)) for task_id in ids]
        await eventually(lambda: _are(topics(db), {f"task:{task_id}" for task_id in ids}))
        await eventually(lambda: has_looked(broker, ids[-1]))
        await db.execute("""UPDATE horsies_tasks SET status = 'COMPLETED', result = format('{"ok": "%s"}', id)""")
        assert [result.ok for result in await asyncio.wait_for(asyncio.gather(*waiting), 30)] == ids
        assert sorted(await heard()) == [bell for task_id in ids for bell in done(task_id)]
        await eventually(lambda: _are(topics(db), set()))


async def _are(found: Any, wanted: Any) -> bool:
    return bool(await found == wanted)


async def test_d60_a_client_that_left_while_its_word_was_written_takes_it_back(
    broker: PostgresBroker, db: AsyncConnection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await change_mode(database_url, "when_waiting")
    task_id = await given_task(db)
    announced: list[str] = []
    announce = result_rows.announce

    async def announce_and_tell(conn: AsyncConnection, ids: list[str], holder: str, seconds: float) -> None:
        await announce(conn, ids, holder, seconds)
        announced.extend(ids)

    monkeypatch.setattr(result_rows, "announce", announce_and_tell)
    async with await AsyncConnection.connect(database_url) as locking:
        await locking.execute("LOCK TABLE horsies_waiting IN EXCLUSIVE MODE")
        result = await broker.get_result_async(task_id, 50)
        assert result.err_value.error_code is RetrievalCode.WAIT_TIMEOUT
        await eventually(lambda: _is_blocked(db))
    await eventually(lambda: announced == [task_id])
    await eventually(lambda: _are(topics(db), set()))
    assert await broker.bridge.call(lambda: _remembered(broker)) == {}


async def _remembered(broker: PostgresBroker) -> dict[str, float]:
    return broker.hub._waiters["task_done"]._word


async def _is_blocked(db: AsyncConnection) -> bool:
    cursor = await db.execute(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return cursor.rowcount > 0


STATEMENTS = {
    "waiting/announce": {"ids": ["x"], "holder": "me", "seconds": 60.0},
    "waiting/withdraw": {"ids": ["x"], "holder": "me"},
    "workers/announce_idle": {"queues": ["q"], "worker_id": "me", "wake_key": 7, "until": "10 s", "leaves": None},
    "workers/withdraw_idle": {"queues": ["q"], "worker_id": "me"},
    "tasks/results": {"ids": ["x"]},
}
INSERT = "INSERT INTO horsies_tasks (id, task_name) VALUES (gen_random_uuid()::text, 't')"
READ = (
    "SELECT sum(seq_scan)::int, sum(idx_tup_fetch)::int FROM pg_stat_xact_user_tables"
    " WHERE relname IN ('horsies_waiting', 'horsies_tasks')"
)


@pytest.mark.parametrize("name", [*STATEMENTS, "insert"])
async def test_d60_ten_thousand_who_wait_cost_the_others_nothing(
    db: AsyncConnection, database_url: str, name: str
) -> None:
    """Not even in a session that made its plans when nobody waited, as every producer does."""
    await change_mode(database_url, "when_waiting")
    await db.execute("VACUUM ANALYZE horsies_waiting")
    statement, params = (INSERT, None) if name == "insert" else (load(name), STATEMENTS[name])
    options = "" if name == "insert" else BY_INDEX  # an insert may come from anybody's session
    async with await AsyncConnection.connect(database_url, autocommit=True, options=options) as conn:
        for _ in range(12):
            await conn.execute(statement.encode(), params, prepare=True)
        await db.execute(
            "INSERT INTO horsies_waiting SELECT 'task:' || n, 'me', '9999-01-01' FROM generate_series(1, 10000) n"
        )
        await db.execute("INSERT INTO horsies_tasks (id, task_name) SELECT n, 't' FROM generate_series(1, 2000) n")
        async with conn.transaction():
            await conn.execute(statement.encode(), params, prepare=True)
            row = await (await conn.execute(READ)).fetchone()
    assert row is not None and row[0] == 0 and row[1] < 100


async def test_d12_sessions_of_a_client_never_read_the_whole_table(broker: PostgresBroker) -> None:
    async def setting() -> Any:
        async with broker.hub.connection() as conn:
            return await (await conn.execute("SHOW enable_seqscan")).fetchone()

    assert await broker.bridge.call(setting) == ("off",)
