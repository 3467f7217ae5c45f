"""Waiting for results (T-60 … T-62, T-64): whatever rings or does not ring, the answer comes, and nothing raises."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, sql
from pydantic import BaseModel, field_validator

from horsies.core.app import Horsies
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import BrokerErrorCode, PostgresConfig
from horsies.core.models.tasks import (
    ContractCode,
    OperationalErrorCode,
    OutcomeCode,
    RetrievalCode,
    TaskError,
    TaskResult,
)
from horsies.core.producer import waiter
from horsies.core.producer.send import TaskHandle
from horsies.core.schema.install import install
from horsies.core.types.status import TaskStatus
from tests.app_support import an_app, define_add
from tests.factories import end_task, given_task, task_row
from tests.services.test_pool import refusing_port
from tests.support import eventually

COMPLETED, FAILED, CANCELLED, EXPIRED = (
    TaskStatus.COMPLETED,
    TaskStatus.FAILED,
    TaskStatus.CANCELLED,
    TaskStatus.EXPIRED,
)


@pytest.fixture
def broker(database_url: str) -> Iterator[PostgresBroker]:
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    yield broker
    broker.close()


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gets an answer in time got it from a notification."""
    monkeypatch.setattr(waiter, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr(waiter, "PAUSES", ())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiter, "PATIENCE_SECONDS", 0.3)


def code_of(result: TaskResult[object, TaskError]) -> object:
    return result.err_value.error_code


async def is_waited_for(broker: PostgresBroker, task_id: str) -> bool:
    """Whether the waiter has looked for the task and listens now."""

    async def look() -> bool:
        hub = broker.hub
        found = hub._waiters.get("task_done")
        places = found._places.get(task_id, []) if found is not None else []
        return hub.listener.connected and bool(places) and all(place.looked for place in places)

    return await broker.bridge.call(look)


async def sessions(db: AsyncConnection, name: str = "horsies%") -> list[tuple[int, str]]:
    rows = await db.execute(
        "SELECT pid, application_name FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE %s ORDER BY pid",
        [name],
    )
    return await rows.fetchall()


async def kill_sessions(db: AsyncConnection, name: str = "horsies%") -> None:
    for pid, _ in await sessions(db, name):
        await db.execute("SELECT pg_terminate_backend(%s)", [pid])


ENDINGS = [
    (COMPLETED, '{"ok": [1, null]}', None),
    (FAILED, '{"err": {"error_code": "MY_CODE", "message": "no"}}', "MY_CODE"),
    (CANCELLED, None, OutcomeCode.TASK_CANCELLED),
    (CANCELLED, '{"err": {"error_code": {"__builtin_task_code__": "TASK_CANCELLED"}}}', OutcomeCode.TASK_CANCELLED),
    (CANCELLED, "garbage", OutcomeCode.TASK_CANCELLED),
    (EXPIRED, None, OutcomeCode.TASK_EXPIRED),
    (COMPLETED, "{", OperationalErrorCode.RESULT_DESERIALIZATION_ERROR),
    (COMPLETED, "[]", OperationalErrorCode.RESULT_DESERIALIZATION_ERROR),
    (COMPLETED, "{}", OperationalErrorCode.RESULT_DESERIALIZATION_ERROR),
    (COMPLETED, '{"ok": 1, "err": {}}', OperationalErrorCode.RESULT_DESERIALIZATION_ERROR),
    (COMPLETED, '{"okay": 1}', OperationalErrorCode.RESULT_DESERIALIZATION_ERROR),
    (FAILED, '{"err": {"no_such_field": 1}}', OperationalErrorCode.RESULT_DESERIALIZATION_ERROR),
    (FAILED, '{"err": {"error_code": "WORKER_CRASHED"}}', OperationalErrorCode.RESULT_DESERIALIZATION_ERROR),
    (FAILED, None, OperationalErrorCode.WORKER_CRASHED),
    (COMPLETED, None, RetrievalCode.RESULT_NOT_AVAILABLE),
]


async def test_t61_what_is_stored_is_what_comes_back(broker: PostgresBroker, db: AsyncConnection) -> None:
    for status, stored, code in ENDINGS:
        task_id = await given_task(db, status=status, result=stored)
        for result in (broker.get_result(task_id), await broker.get_result_async(task_id, 10_000)):
            found = (result.ok, None) if result.is_ok() else (None, code_of(result))
            assert found == (([1, None], None) if code is None else (None, code)), f"{status} with {stored}"


async def test_t61_a_crash_without_result_tells_its_reason(broker: PostgresBroker, db: AsyncConnection) -> None:
    task_id = await given_task(db, status=FAILED, failed_reason="signal 9")
    assert broker.get_result(task_id).err_value.message == "signal 9"


async def test_t61_an_unknown_id_is_task_not_found(broker: PostgresBroker) -> None:
    strange: list[Any] = ["no such task", "", "x" * 500, "a\0b", "\ud800", None, 7]
    for task_id in strange:
        assert code_of(broker.get_result(task_id)) is RetrievalCode.TASK_NOT_FOUND, repr(task_id)


async def test_t61_time_over_is_wait_timeout(broker: PostgresBroker, db: AsyncConnection) -> None:
    task_id = await given_task(db)
    for timeout_ms in (0, -5, 1, 30):
        assert code_of(broker.get_result(task_id, timeout_ms)) is RetrievalCode.WAIT_TIMEOUT
        assert code_of(await broker.get_result_async(task_id, timeout_ms)) is RetrievalCode.WAIT_TIMEOUT


async def test_t61_no_time_at_all_is_enough_for_one_look(broker: PostgresBroker, db: AsyncConnection) -> None:
    task_id = await given_task(db, status=COMPLETED, result='{"ok": 1}')
    assert broker.get_result(task_id, 0) == TaskResult(ok=1)


@pytest.mark.usefixtures("no_polling")
async def test_t61_the_end_of_a_task_rings(broker: PostgresBroker, db: AsyncConnection) -> None:
    for status in (COMPLETED, FAILED, CANCELLED, EXPIRED):
        task_id = await given_task(db)
        waiting = asyncio.create_task(broker.get_result_async(task_id))
        await eventually(functools.partial(is_waited_for, broker, task_id))
        await end_task(db, task_id, status, '{"ok": 1}')
        assert (await asyncio.wait_for(waiting, 15)).is_ok()


async def test_t61_without_any_notification_polling_finds_it(broker: PostgresBroker, db: AsyncConnection) -> None:
    await db.execute("DROP TRIGGER horsies_task_notify_update ON horsies_tasks")
    task_id = await given_task(db)
    waiting = asyncio.create_task(broker.get_result_async(task_id))
    await eventually(lambda: is_waited_for(broker, task_id))
    await end_task(db, task_id, COMPLETED, '{"ok": 1}')
    assert await asyncio.wait_for(waiting, 15) == TaskResult(ok=1)


async def test_t61_the_row_of_a_task_that_is_waited_for_is_deleted(broker: PostgresBroker, db: AsyncConnection) -> None:
    task_id = await given_task(db)
    waiting = asyncio.create_task(broker.get_result_async(task_id))
    await eventually(lambda: is_waited_for(broker, task_id))
    await db.execute("DELETE FROM horsies_tasks")
    assert code_of(await asyncio.wait_for(waiting, 15)) is RetrievalCode.TASK_NOT_FOUND


async def test_t61_each_waiter_has_its_own_time(broker: PostgresBroker, db: AsyncConnection) -> None:
    task_id = await given_task(db)
    short = asyncio.create_task(broker.get_result_async(task_id, 50))
    long = asyncio.create_task(broker.get_result_async(task_id, 60_000))
    unlimited = asyncio.create_task(broker.get_result_async(task_id))
    assert code_of(await asyncio.wait_for(short, 15)) is RetrievalCode.WAIT_TIMEOUT
    await end_task(db, task_id, COMPLETED, '{"ok": 1}')
    assert await asyncio.wait_for(asyncio.gather(long, unlimited), 15) == [TaskResult(ok=1)] * 2


@pytest.mark.usefixtures("no_polling")
async def test_t11_what_ended_while_the_listener_was_away_is_found(broker: PostgresBroker, db: AsyncConnection) -> None:
    task_id = await given_task(db)
    waiting = asyncio.create_task(broker.get_result_async(task_id))
    await eventually(lambda: is_waited_for(broker, task_id))
    await kill_sessions(db, "horsies listener")
    await end_task(db, task_id, COMPLETED, '{"ok": 1}')
    assert await asyncio.wait_for(waiting, 15) == TaskResult(ok=1)


@pytest.mark.slow("ten thousand waiters")
async def test_t61_ten_thousand_waiters_cost_one_listening_connection(
    broker: PostgresBroker, db: AsyncConnection
) -> None:
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name) SELECT 'task-' || n, 't' FROM generate_series(1, 10000) n"
    )
    ids = [f"task-{n}" for n in range(1, 10_001)]
    waiting = [asyncio.create_task(broker.get_result_async(task_id)) for task_id in ids]
    await eventually(lambda: is_waited_for(broker, ids[-1]), timeout=60)
    names = [name for _, name in await sessions(db)]
    assert (names.count("horsies listener"), len(names)) == (1, 2)
    await db.execute("""UPDATE horsies_tasks SET status = 'COMPLETED', result = format('{"ok": "%s"}', id)""")
    results = await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert [result.ok for result in results] == ids


async def when_waiting(url: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        await install(conn, notify="when_waiting", change_notify=True)


async def words(db: AsyncConnection) -> list[str]:
    rows = await db.execute("SELECT topic FROM horsies_waiting WHERE until > now() + interval '20 s' ORDER BY topic")
    return [topic for (topic,) in await rows.fetchall()]


@pytest.mark.usefixtures("no_polling")
async def test_d60_when_waiting_a_word_is_left_before_the_look_and_taken_back(
    broker: PostgresBroker, db: AsyncConnection, database_url: str
) -> None:
    await when_waiting(database_url)
    ended, overdue = await given_task(db), await given_task(db)
    waiting = asyncio.create_task(broker.get_result_async(ended))
    await eventually(lambda: is_waited_for(broker, ended))
    assert await words(db) == [f"task:{ended}"]
    await end_task(db, ended, COMPLETED, '{"ok": 1}')
    assert await asyncio.wait_for(waiting, 15) == TaskResult(ok=1)
    assert code_of(await broker.get_result_async(overdue, 50)) is RetrievalCode.WAIT_TIMEOUT
    await eventually(lambda: _no_words(db))


async def _no_words(db: AsyncConnection) -> bool:
    return await words(db) == []


async def test_d60_waiters_follow_the_recorded_mode_when_it_changes(
    broker: PostgresBroker, db: AsyncConnection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiter, "MODE_SECONDS", 0.0)
    task_id = await given_task(db)
    waiting = asyncio.create_task(broker.get_result_async(task_id))
    await eventually(lambda: is_waited_for(broker, task_id))
    assert await words(db) == []
    await when_waiting(database_url)
    await eventually(lambda: words(db))
    await end_task(db, task_id, COMPLETED, '{"ok": 1}')
    assert await asyncio.wait_for(waiting, 15) == TaskResult(ok=1)


@pytest.mark.usefixtures("no_polling")
async def test_d60_words_are_taken_back_when_the_broker_is_closed(
    broker: PostgresBroker, db: AsyncConnection, database_url: str
) -> None:
    await when_waiting(database_url)
    task_id = await given_task(db)
    waiting = asyncio.create_task(broker.get_result_async(task_id))
    await eventually(lambda: words(db))
    await broker.close_async()
    assert code_of(await asyncio.wait_for(waiting, 15)) is RetrievalCode.WAIT_INTERRUPTED
    assert await words(db) == []


@pytest.fixture
async def closed_database(server_url: str, database_url: str, db: AsyncConnection) -> AsyncIterator[DatabaseDoor]:
    yield DatabaseDoor(server_url, db.info.dbname, db)


class DatabaseDoor:
    """Makes the database unreachable and reachable again."""

    def __init__(self, server_url: str, name: str, db: AsyncConnection) -> None:
        self._server_url = server_url
        self._name = name
        self._db = db

    async def shut(self) -> None:
        self._allow(False)
        await kill_sessions(self._db)

    def open(self) -> None:
        self._allow(True)

    def _allow(self, allowed: bool) -> None:
        with psycopg.connect(self._server_url, autocommit=True) as server:
            server.execute(
                sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format(
                    sql.Identifier(self._name), sql.Literal(allowed)
                )
            )


async def test_t61_a_database_that_stays_away_is_broker_error(
    broker: PostgresBroker, db: AsyncConnection, closed_database: DatabaseDoor
) -> None:
    task_id = await given_task(db)
    handle: TaskHandle[int] = TaskHandle(task_id, broker)
    waiting = asyncio.create_task(handle.get_async())
    await eventually(lambda: is_waited_for(broker, task_id))
    await closed_database.shut()
    assert code_of(await asyncio.wait_for(waiting, 15)) is OperationalErrorCode.BROKER_ERROR
    closed_database.open()
    await end_task(db, task_id, COMPLETED, '{"ok": 1}')
    assert handle.get(10_000) == TaskResult(ok=1)  # T-62: BROKER_ERROR was not kept


async def test_t61_connections_that_break_are_replaced_and_nobody_notices(
    broker: PostgresBroker, db: AsyncConnection
) -> None:
    task_id = await given_task(db)
    waiting = asyncio.create_task(broker.get_result_async(task_id))
    await eventually(lambda: is_waited_for(broker, task_id))
    await kill_sessions(db)
    await end_task(db, task_id, COMPLETED, '{"ok": 1}')
    assert await asyncio.wait_for(waiting, 15) == TaskResult(ok=1)


@pytest.mark.usefixtures("impatient")
async def test_t61_an_outage_is_waited_out_for_a_moment_and_then_reported(
    broker: PostgresBroker, db: AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement fails as with a lost connection, until it does not, or until patience is over."""
    task_id = await given_task(db, status=COMPLETED, result='{"ok": 1}')
    asked = 0
    real = waiter.TASKS.look

    async def flaky(conn: AsyncConnection, ids: list[str]) -> list[object]:
        nonlocal asked
        asked += 1
        if asked <= failures:
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return list(await real(conn, ids))

    monkeypatch.setattr(waiter, "TASKS", replace(waiter.TASKS, look=flaky))
    failures = 1
    assert await broker.get_result_async(task_id) == TaskResult(ok=1)
    asked, failures = 0, 1000
    gave_up = await broker.get_result_async(task_id)
    assert code_of(gave_up) is OperationalErrorCode.BROKER_ERROR
    assert "server closed the connection" in str(gave_up.err_value.message)
    assert asked > 1


async def test_t61_an_unreachable_database_is_broker_error_with_the_reason() -> None:
    broker = PostgresBroker(PostgresConfig(database_url=f"postgresql://u:sesame@127.0.0.1:{refusing_port()}/x"))
    try:
        error = broker.get_result("x").err_value
        assert error.error_code is OperationalErrorCode.BROKER_ERROR
        assert "Connection refused" in str(error.message) and "sesame" not in str(error.message)
    finally:
        broker.close()


async def test_t62_a_final_result_is_kept(broker: PostgresBroker, db: AsyncConnection) -> None:
    handle: TaskHandle[int] = TaskHandle(await given_task(db), broker)
    assert code_of(handle.get(0)) is RetrievalCode.WAIT_TIMEOUT
    await end_task(db, handle.task_id, COMPLETED, '{"ok": 1}')
    assert handle.get() == TaskResult(ok=1)
    await db.execute("DELETE FROM horsies_tasks")
    assert handle.get() == TaskResult(ok=1)
    assert await handle.get_async(0) == TaskResult(ok=1)


class Point(BaseModel):
    x: int
    y: int = 0


class Grumpy(BaseModel):
    x: int

    @field_validator("x")
    @classmethod
    def never(cls, value: int) -> int:
        raise KeyError("surprise")


async def test_t60_the_value_comes_back_as_its_type(app: Horsies, db: AsyncConnection) -> None:
    @app.task("locate")
    def locate() -> TaskResult[Point, TaskError]:
        return TaskResult(ok=Point(x=1))

    handle = locate.send().unwrap()
    await end_task(db, handle.task_id, COMPLETED, '{"ok": {"x": 1, "y": 2}}')
    assert handle.get(10_000) == TaskResult(ok=Point(x=1, y=2))
    assert await handle.get_async(10_000) == TaskResult(ok=Point(x=1, y=2))
    assert app.get_broker().get_result(handle.task_id) == TaskResult(ok=Point(x=1, y=2))
    assert app.get_result(handle.task_id).unwrap() == TaskResult(ok=Point(x=1, y=2))
    assert (await app.get_result_async(handle.task_id)).unwrap() == TaskResult(ok=Point(x=1, y=2))


@pytest.mark.parametrize("returns", [Point, Grumpy])
async def test_t61_a_value_that_does_not_fit_its_type_is_a_hydration_error(
    app: Horsies, db: AsyncConnection, returns: type[BaseModel]
) -> None:
    @app.task("odd")
    def odd() -> TaskResult[returns, TaskError]:  # type: ignore[valid-type]
        raise NotImplementedError

    handle = odd.send().unwrap()
    await end_task(db, handle.task_id, COMPLETED, '{"ok": {"x": "one"}}' if returns is Point else '{"ok": {"x": 1}}')
    assert code_of(handle.get(10_000)) is ContractCode.PYDANTIC_HYDRATION_ERROR


@pytest.mark.slow("a result of fifty megabytes")
async def test_t61_a_result_of_fifty_megabytes_arrives(app: Horsies, db: AsyncConnection) -> None:
    @app.task("large")
    def large() -> TaskResult[str, TaskError]:
        raise NotImplementedError

    handle = large.send().unwrap()
    await end_task(db, handle.task_id, COMPLETED, json.dumps({"ok": "x" * 50_000_000}))
    assert len(handle.get().ok_value) == 50_000_000


async def test_t64_the_app_tells_infrastructure_from_outcome(app: Horsies, db: AsyncConnection) -> None:
    add = define_add(app)
    unregistered = await given_task(db, status=COMPLETED, task_name="elsewhere", result='{"ok": 1}')
    assert app.get_result(unregistered).unwrap_err().code is BrokerErrorCode.NO_TYPE_AVAILABLE
    assert app.get_broker().get_result(unregistered) == TaskResult(ok=1)
    broken = await given_task(db, status=COMPLETED, task_name=add.task_name, result="{")
    assert app.get_result(broken).unwrap_err().code is BrokerErrorCode.INVALID_JSON_PAYLOAD
    assert code_of(app.get_result("nobody").unwrap()) is RetrievalCode.TASK_NOT_FOUND
    running = await given_task(db, status=TaskStatus.RUNNING, task_name=add.task_name)
    assert code_of(app.get_result(running, 0).unwrap()) is RetrievalCode.WAIT_TIMEOUT


async def test_t64_the_app_reports_a_database_that_is_away() -> None:
    with an_app(f"postgresql://u@127.0.0.1:{refusing_port()}/x") as app:
        error = (await app.get_result_async("x")).unwrap_err()
        assert (error.code, error.retryable) == (BrokerErrorCode.DB_OPERATION_FAILED, True)


async def test_t60_send_wait_look(app: Horsies, db: AsyncConnection) -> None:
    """The whole way of a client, with a worker played by the test."""
    handle = define_add(app).send(1, 2).unwrap()
    waiting = asyncio.create_task(handle.get_async())
    row = await task_row(db, handle.task_id)
    await end_task(db, handle.task_id, COMPLETED, json.dumps({"ok": sum(json.loads(row["args"]))}))
    assert await asyncio.wait_for(waiting, 15) == TaskResult(ok=3)
    info = handle.info(include_result=True).unwrap()
    assert info is not None and info.result == TaskResult(ok=3)
