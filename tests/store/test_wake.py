"""Which idle workers a statement wakes (D-61), heard by a real LISTEN session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from psycopg import AsyncConnection, sql

from horsies.core.schema.install import NOTIFY_MODES, install
from tests.doorbell_support import listening

WORKERS = {1: "one", 2: "two", 3: "three", -4: "four"}
CHANNELS = tuple(f"horsies_wake_{key}" for key in WORKERS)
INSERT = "INSERT INTO horsies_tasks (id, task_name, queue_name) SELECT gen_random_uuid(), 't', unnest(%s::text[])"

Woken = Callable[[], Awaitable[list[int]]]


@pytest.fixture
async def woken(database_url: str) -> AsyncIterator[Woken]:
    async with listening(database_url, *CHANNELS) as heard:

        async def keys() -> list[int]:
            return [int(channel.removeprefix("horsies_wake_")) for channel, _ in await heard()]

        yield keys


@pytest.fixture
async def alive(database_url: str) -> AsyncIterator[AsyncConnection]:
    """The sessions of all workers: what holds their liveness locks."""
    async with await AsyncConnection.connect(database_url, autocommit=True) as conn:
        for key in WORKERS:
            await conn.execute("SELECT pg_advisory_lock_shared(%s)", [key])
        yield conn


async def idle(db: AsyncConnection, key: int, *queues: str, seconds: float = 60) -> None:
    await db.execute(
        "INSERT INTO horsies_waiting (topic, holder, until, queues, wake_key)"
        " VALUES ('worker', %s, clock_timestamp() + make_interval(secs => %s), %s, %s)"
        " ON CONFLICT (topic, holder) DO UPDATE SET until = EXCLUDED.until",
        [WORKERS[key], seconds, list(queues or ("default",)), key],
    )


@pytest.mark.parametrize("mode", ["always", "when_waiting"])
@pytest.mark.usefixtures("alive")
async def test_d61_a_new_task_wakes_the_worker_whose_mark_is_the_newest(
    db: AsyncConnection, woken: Woken, mode: str
) -> None:
    await install(db, notify=mode, change_notify=True)
    for key in (3, 1, 2):
        await idle(db, key)
    await db.execute(INSERT, [["default"]])
    assert await woken() == [2]
    await idle(db, 1)
    await db.execute(INSERT, [["default"]])
    assert await woken() == [1]


@pytest.mark.parametrize("mode", ["always", "when_waiting"])
@pytest.mark.usefixtures("alive")
async def test_d61_many_new_tasks_wake_as_many_workers_and_only_those_of_their_queues(
    db: AsyncConnection, woken: Woken, mode: str
) -> None:
    await install(db, notify=mode, change_notify=True)
    await idle(db, 1, "left", "right")
    await idle(db, 2, "left")
    await idle(db, 3, "right")
    await idle(db, -4, "other")
    await db.execute(INSERT, [["left"] * 2])
    assert sorted(await woken()) == [1, 2]
    await db.execute(INSERT, [["left"] * 1000 + ["right"]])
    assert sorted(await woken()) == [1, 2, 3]
    await db.execute(INSERT, [["nobody serves it"]])
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, queue_name, status) VALUES ('x', 't', 'left', 'CLAIMED')"
    )
    await db.execute("UPDATE horsies_tasks SET status = 'COMPLETED'")
    assert await woken() == []


async def test_d61_a_worker_whose_session_has_ended_is_passed_over(
    db: AsyncConnection, alive: AsyncConnection, woken: Woken
) -> None:
    for key in (1, 2, 3):
        await idle(db, key)
    await alive.execute("SELECT pg_advisory_unlock_shared(3)")
    await db.execute(INSERT, [["default"]])
    assert await woken() == [2]
    [(held,)] = await (
        await db.execute(
            "SELECT count(*) FROM pg_locks WHERE mode = 'ExclusiveLock' AND objid = 3 AND locktype = 'advisory'"
        )
    ).fetchall()
    assert held == 0, "to look whether it lives leaves nothing behind"


@pytest.mark.usefixtures("alive")
async def test_d61_a_mark_that_has_lapsed_wakes_nobody(db: AsyncConnection, woken: Woken) -> None:
    await idle(db, 1)
    await idle(db, 2, seconds=-1)
    await db.execute(INSERT, [["default"] * 3])
    assert await woken() == [1]


@pytest.mark.parametrize("mode", NOTIFY_MODES)
@pytest.mark.usefixtures("alive")
async def test_l21_whoever_gives_a_task_back_is_woken_only_if_there_is_no_other(
    db: AsyncConnection, woken: Woken, mode: str
) -> None:
    await install(db, notify=mode, change_notify=True)
    rings = mode != "off"
    await idle(db, 1)
    await db.execute("SELECT horsies_ring('default', 'x', 'one')")
    assert await woken() == ([1] if rings else [])
    await idle(db, 2)
    await idle(db, 1)
    await db.execute("SELECT horsies_ring('default', 'x', 'one')")
    assert await woken() == ([2] if rings else [])
    await db.execute("SELECT horsies_ring('default', 'x', NULL)")
    assert await woken() == ([1] if rings else [])
    await db.execute(INSERT, [["default"]])
    assert await woken() == ([1] if rings else [])


@pytest.mark.usefixtures("alive")
async def test_d60_when_waiting_older_workers_hear_one_notification_for_each_statement_and_queue(
    db: AsyncConnection, database_url: str
) -> None:
    await install(db, notify="when_waiting", change_notify=True)
    await db.execute("INSERT INTO horsies_waiting (topic, holder, until) VALUES ('queue:left', 'old', '9999-01-01')")
    async with listening(database_url) as heard:
        await db.execute(INSERT, [["left"] * 5 + ["right"]])
        assert [channel for channel, _ in await heard()] == ["task_new", "task_queue_left"]


@pytest.mark.usefixtures("alive")
async def test_o20_a_role_that_may_only_send_wakes_workers(db: AsyncConnection, woken: Woken) -> None:
    for mode in ("always", "when_waiting"):
        await install(db, notify=mode, change_notify=True)
        await idle(db, 1)
        role = sql.Identifier(f"sender_{db.info.dbname}")
        async with db.transaction():
            await db.execute(sql.SQL("CREATE ROLE {}").format(role))
            await db.execute(sql.SQL("GRANT INSERT ON horsies_tasks TO {}").format(role))
            await db.execute(sql.SQL("SET LOCAL ROLE {}").format(role))
            await db.execute(INSERT, [["default"]])
            await db.execute("RESET ROLE")
            await db.execute(sql.SQL("DROP OWNED BY {}").format(role))
            await db.execute(sql.SQL("DROP ROLE {}").format(role))
        assert await woken() == [1]
