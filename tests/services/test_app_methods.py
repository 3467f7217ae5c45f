"""What a broker and an app can be asked (M-40, M-41): every method, blocking and awaiting, and failures as values."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import AppConfig, Horsies, PostgresConfig, WorkerStateSnapshot
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.db import facts_of
from horsies.core.types.status import TaskStatus
from tests.conftest import fresh_database
from tests.factories import given_attempt, given_task, given_worker_state
from tests.services.test_broker import answering_workers

NEWEST = datetime(2030, 1, 1, tzinfo=UTC)
OF_APPS = ["ping_database", "ping_workers", "list_worker_states", "get_worker_state", "get_worker_state_history"]
OF_BROKERS = ["get_stale_tasks", "mark_stale_tasks_as_failed", "requeue_stale_claimed", "get_expired_tasks"]


async def fill(url: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as db:
        for worker in ("w1", "w2"):
            for age in range(3):
                await given_worker_state(db, worker, snapshot_at=NEWEST - timedelta(minutes=age), tasks_running=age)
        await given_task(
            db, id="t", status=TaskStatus.FAILED, result='{"err": {"error_code": "NO"}}', failed_reason="why"
        )
        await given_attempt(db, "t")


@pytest.fixture(scope="module")
def app(server_url: str, template: str) -> Iterator[Horsies]:
    with fresh_database(server_url, template) as url:
        asyncio.run(fill(url))
        app = Horsies(AppConfig(broker=PostgresConfig(database_url=url)))
        try:
            yield app
        finally:
            app.get_broker().close()


async def both(app: Horsies, method: str, *args: Any, **kwargs: Any) -> list[Any]:
    """What the blocking and the awaiting twin answer."""
    return [
        getattr(app, method)(*args, **kwargs).unwrap(),
        (await getattr(app, f"{method}_async")(*args, **kwargs)).unwrap(),
    ]


async def test_m41_the_app_pings_its_database(app: Horsies) -> None:
    assert all(answer.latency_ms > 0 for answer in await both(app, "ping_database"))


async def test_m41_the_app_pings_workers_and_ends_early_when_enough_have_answered(app: Horsies) -> None:
    async with answering_workers(app.config.broker.dsn(), "w1", "w2"):
        pongs = (await app.ping_workers_async(timeout_seconds=600, min_responses=1)).unwrap()
        assert {pong.worker_id for pong in pongs} <= {"w1", "w2"} and pongs[0].hostname == "h" and pongs[0].pid == 7
        [one] = (await asyncio.to_thread(app.ping_workers, "w2", 600)).unwrap()
        assert one.worker_id == "w2" and one.latency_ms > 0


def test_m41_without_a_word_two_seconds_are_waited_for_workers() -> None:
    for method in (Horsies.ping_workers, Horsies.ping_workers_async):
        assert inspect.signature(method).parameters["timeout_seconds"].default == 2.0


async def test_m41_answers_to_earlier_questions_disturb_nobody(app: Horsies, caplog: pytest.LogCaptureFixture) -> None:
    async with answering_workers(app.config.broker.dsn(), "w1"):
        for _ in range(100):
            (await app.ping_workers_async(timeout_seconds=0.0005)).unwrap()
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
async def test_m40_m41_what_no_column_can_hold_is_not_there(app: Horsies, name: str) -> None:
    assert await both(app, "get_task_info", name) == [None, None]
    assert await both(app, "get_worker_state", name) == [None, None]
    assert await both(app, "get_worker_state_history", name) == [[], []]
    assert await both(app, "get_worker_state_history", "w1", limit=-5) == [[], []]
    answer = await app.get_broker().cancel_task_async(name)
    assert answer.unwrap_err().code == "TASK_NOT_FOUND"


async def test_m41_the_newest_state_of_each_worker(app: Horsies) -> None:
    for states in await both(app, "list_worker_states"):
        assert [(state.worker_id, state.snapshot_at) for state in states] == [("w1", NEWEST), ("w2", NEWEST)]


async def test_m41_the_state_of_one_worker(app: Horsies) -> None:
    for state in await both(app, "get_worker_state", "w2"):
        assert isinstance(state, WorkerStateSnapshot) and (state.worker_id, state.tasks_running) == ("w2", 0)
    assert await both(app, "get_worker_state", "w3") == [None, None]


async def test_m41_the_history_of_one_worker_newest_first(app: Horsies) -> None:
    for states in await both(app, "get_worker_state_history", "w1"):
        assert [state.tasks_running for state in states] == [0, 1, 2]
    for states in await both(app, "get_worker_state_history", "w1", limit=2):
        assert [state.tasks_running for state in states] == [0, 1]


async def test_m41_a_snapshot_has_the_columns_of_its_table(app: Horsies) -> None:
    async with await AsyncConnection.connect(app.config.broker.dsn()) as db:
        cursor = await db.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'horsies_worker_states'::regclass AND attnum > 0"
        )
        assert {field.name for field in dataclasses.fields(WorkerStateSnapshot)} == {
            n for (n,) in await cursor.fetchall()
        }


async def test_m40_task_info_of_a_row_that_is_not_there(app: Horsies) -> None:
    broker = app.get_broker()
    assert broker.get_task_info("none").unwrap() is None
    assert (await broker.get_task_info_async("none")).unwrap() is None


@pytest.mark.parametrize("wanted", ["include_result", "include_failed_reason", "include_attempts"])
async def test_m40_task_info_holds_what_may_be_large_only_when_asked(app: Horsies, wanted: str) -> None:
    broker, field = app.get_broker(), wanted.removeprefix("include_")
    large = {"result", "failed_reason", "attempts"}
    options: dict[str, Any] = {wanted: True}
    for info in (broker.get_task_info("t", **options), await broker.get_task_info_async("t", **options)):
        found = info.unwrap()
        assert found is not None and {name for name in large if getattr(found, name) is not None} == {field}
    plain = broker.get_task_info("t").unwrap()
    assert plain is not None and (plain.result, plain.failed_reason, plain.attempts) == (None, None, None)


@pytest.mark.parametrize("name", [*OF_BROKERS, "get_worker_stats"])
async def test_m40_broker_methods_answer_with_a_result_and_have_awaiting_forms(app: Horsies, name: str) -> None:
    answer = await getattr(app.get_broker(), name)()
    assert answer.is_ok() and answer.unwrap() in ([], 0)


@pytest.mark.parametrize("name", OF_APPS)
def test_m41_each_method_has_its_twin_with_the_same_parameters(name: str) -> None:
    blocking, awaiting = getattr(Horsies, name), getattr(Horsies, f"{name}_async")
    assert inspect.iscoroutinefunction(awaiting) and not inspect.iscoroutinefunction(blocking)
    assert inspect.signature(blocking).parameters == inspect.signature(awaiting).parameters
    assert hasattr(PostgresBroker, name) and hasattr(PostgresBroker, f"{name}_async")


def test_m48_a_failure_does_not_tell_the_password() -> None:
    config = PostgresConfig(database_url="postgresql+psycopg://me:topsecret@host/db")
    facts = facts_of(RuntimeError("cannot open postgresql://me:topsecret@host/db"), config)
    assert "topsecret" not in facts["message"]
