"""Many waiters (T-61): only those are asked about again whose end may have been missed, and the others in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from psycopg import AsyncConnection

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.tasks import TaskResult
from horsies.core.producer import waiter
from horsies.core.schema.install import install
from horsies.core.types.status import TaskStatus
from tests.doorbell_support import kill_listeners
from tests.factories import end_task
from tests.services.test_waiter import is_waited_for
from tests.support import eventually

MANY = 500
IDS = [f"task-{n}" for n in range(MANY)]


@pytest.fixture
def broker(database_url: str) -> Iterator[PostgresBroker]:
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    yield broker
    broker.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The ids of each look."""
    looks: list[list[str]] = []
    real = waiter.TASKS.look

    async def look(conn: AsyncConnection, ids: list[str]) -> list[object]:
        looks.append(ids)
        return list(await real(conn, ids))

    monkeypatch.setattr(waiter, "TASKS", replace(waiter.TASKS, look=look))
    return looks


async def wait_for_all(broker: PostgresBroker, db: AsyncConnection) -> list[asyncio.Task[TaskResult]]:
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name) SELECT 'task-' || n, 't' FROM generate_series(0, %s) n", [MANY - 1]
    )
    waiting = [asyncio.create_task(broker.get_result_async(task_id)) for task_id in IDS]
    for task_id in (IDS[0], IDS[-1]):
        await eventually(lambda task_id=task_id: is_waited_for(broker, task_id), timeout=60)
    return waiting


async def leave(waiting: list[asyncio.Task[TaskResult]]) -> None:
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def has_gone_round(asked: list[list[str]]) -> bool:
    """The first looks are those of whoever has just come, and not of one size."""
    last = asked[-(MANY // waiter.FEW) :]
    return all(len(ids) <= waiter.FEW for ids in last) and sorted(id_ for ids in last for id_ in ids) == sorted(IDS)


@pytest.mark.parametrize("mode", ["always", "when_waiting"])
async def test_t61_of_many_waiters_only_a_share_is_asked_about_every_second(
    broker: PostgresBroker,
    db: AsyncConnection,
    asked: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    monkeypatch.setattr(waiter, "POLL_SECONDS", 0.2)
    await install(db, notify=mode, change_notify=True)
    waiting = await wait_for_all(broker, db)
    await eventually(lambda: has_gone_round(asked), what="nobody is asked about twice before all others were")
    await db.execute("""UPDATE horsies_tasks SET status = 'COMPLETED', result = format('{"ok": "%s"}', id)""")
    results = await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert [result.ok for result in results] == IDS


async def test_t61_an_end_that_nobody_rang_for_is_found_in_its_turn(
    broker: PostgresBroker, db: AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiter, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(waiter, "FEW", 20)
    monkeypatch.setattr(waiter, "ROUND_SECONDS", 2.0)
    await db.execute("ALTER TABLE horsies_tasks DISABLE TRIGGER USER")
    waiting = await wait_for_all(broker, db)
    for task_id in (IDS[0], IDS[MANY // 2], IDS[-1]):
        await end_task(db, task_id, TaskStatus.COMPLETED, '{"ok": 1}')
        assert await asyncio.wait_for(waiting[IDS.index(task_id)], 30) == TaskResult(ok=1)
    await leave(waiting)


async def test_t61_all_are_asked_about_at_once_when_bells_may_have_been_missed(
    broker: PostgresBroker, db: AsyncConnection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session that listens is lost; taking turns would need an hour."""
    monkeypatch.setattr(waiter, "ROUND_SECONDS", 3600.0)
    monkeypatch.setattr(waiter, "POLLING_ROUND_SECONDS", 3600.0)
    monkeypatch.setattr(waiter, "FEW", 1)
    waiting = await wait_for_all(broker, db)
    async with db.transaction():  # it hears nothing of this: its session ends before the commit
        await end_task(db, IDS[-1], TaskStatus.COMPLETED, '{"ok": 1}')
        assert await asyncio.to_thread(kill_listeners, database_url) == 1
    assert await asyncio.wait_for(waiting[-1], 30) == TaskResult(ok=1)
    await leave(waiting)


async def test_d60_all_are_asked_about_when_the_mode_begins_to_want_marks(
    broker: PostgresBroker, db: AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiter, "ROUND_SECONDS", 3600.0)
    monkeypatch.setattr(waiter, "MODE_SECONDS", 0.0)
    monkeypatch.setattr(waiter, "FEW", 1)
    waiting = await wait_for_all(broker, db)
    await install(db, notify="when_waiting", change_notify=True)

    async def are_marked() -> bool:
        [(count,)] = await (await db.execute("SELECT count(*) FROM horsies_waiting")).fetchall()
        return bool(count == MANY)

    await eventually(are_marked, timeout=30)
    await leave(waiting)
