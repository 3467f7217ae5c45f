"""Waiting for workflows (F-84): whatever rings or does not ring, the answer comes, over the one listener, and nothing
raises."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import (
    Horsies,
    OperationalErrorCode,
    OutcomeCode,
    RetrievalCode,
    TaskError,
    TaskResult,
    TaskStatus,
    WorkflowHandle,
)
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.producer import waiter
from tests.app_support import an_app
from tests.doorbell_support import change_mode
from tests.factories import end_task, given_node, given_task, given_workflow
from tests.services.test_pool import refusing_port
from tests.services.workflows.hand import Hand, Order, Tasks
from tests.support import eventually

Db = AsyncConnection[Any]
ERROR = '{"error_code": "MINE", "message": "no"}'
GONE = '{"error_code": {"__builtin_task_code__": "WORKFLOW_EXPIRED"}}'


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gets an answer in time got it from a notification."""
    monkeypatch.setattr(waiter, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr(waiter, "PAUSES", ())


def handle_of(app: Horsies, workflow_id: str) -> WorkflowHandle[Any]:
    return WorkflowHandle(workflow_id, app.get_broker())


def code_of(result: TaskResult[Any, TaskError]) -> object:
    return result.err_value.error_code


async def is_waited_for(broker: PostgresBroker, workflow_id: str) -> bool:
    """Whether the waiter has looked for the workflow and listens now."""

    async def look() -> bool:
        found = broker.hub._waiters.get("workflow_done")
        places = found._places.get(workflow_id, []) if found is not None else []
        is_heard = "workflow_done" in broker.hub.listener._listening
        return is_heard and bool(places) and all(place.looked for place in places)

    return await broker.bridge.call(look)


ENDINGS: list[tuple[dict[str, Any], object]] = [
    ({"status": "FAILED", "error": ERROR}, "MINE"),
    ({"status": "FAILED", "error": GONE}, OutcomeCode.WORKFLOW_EXPIRED),
    ({"status": "FAILED"}, OutcomeCode.WORKFLOW_FAILED),
    ({"status": "FAILED", "error": "garbage"}, OperationalErrorCode.RESULT_DESERIALIZATION_ERROR),
    ({"status": "CANCELLED"}, OutcomeCode.WORKFLOW_CANCELLED),
    ({"status": "PAUSED"}, OutcomeCode.WORKFLOW_PAUSED),
    ({"status": "RUNNING"}, RetrievalCode.WAIT_TIMEOUT),
    ({"status": "PENDING"}, RetrievalCode.WAIT_TIMEOUT),
]


async def test_f84_each_state_has_its_answer(app: Horsies, clean_db: Db) -> None:
    for columns, code in ENDINGS:
        handle = handle_of(app, await given_workflow(clean_db, **columns))
        for result in (handle.get(60), await handle.get_async(60)):
            assert code_of(result) == code, columns


async def test_f84_the_result_is_that_of_the_output_node(app: Horsies, clean_db: Db) -> None:
    """By policy a workflow can be COMPLETED while its output node is not."""
    outputs: list[tuple[dict[str, Any], object]] = [
        ({"status": "COMPLETED", "result": '{"ok": [1, null]}'}, [1, None]),
        ({"status": "FAILED", "result": '{"err": {"error_code": "MINE"}}'}, "MINE"),
        ({"status": "FAILED"}, OperationalErrorCode.WORKER_CRASHED),
        ({"status": "SKIPPED"}, OutcomeCode.UPSTREAM_SKIPPED),
        ({"status": "COMPLETED"}, RetrievalCode.RESULT_NOT_AVAILABLE),
        ({"status": "COMPLETED", "result": "{"}, OperationalErrorCode.RESULT_DESERIALIZATION_ERROR),
    ]
    for columns, expected in outputs:
        workflow_id = await given_workflow(clean_db, status="COMPLETED", output_index=1)
        await given_node(clean_db, workflow_id, status="COMPLETED", result='{"ok": 0}')
        await given_node(clean_db, workflow_id, task_index=1, **columns)
        result = handle_of(app, workflow_id).get(5_000)
        assert (result.ok if result.is_ok() else code_of(result)) == expected, columns


async def test_f84_without_an_output_it_is_the_results_of_all(app: Horsies, clean_db: Db) -> None:
    workflow_id = await given_workflow(clean_db, status="COMPLETED", result='{"ok":null}')
    await given_node(clean_db, workflow_id, status="COMPLETED", result='{"ok": 0}')
    await given_node(clean_db, workflow_id, task_index=1, status="FAILED", result='{"err": {"error_code": "MINE"}}')
    await given_node(clean_db, workflow_id, task_index=2, status="SKIPPED")
    await given_node(clean_db, workflow_id, task_index=3, status="COMPLETED", node_type="MAP", result='{"ok": []}')
    await given_node(
        clean_db, workflow_id, task_index=4, status="COMPLETED", node_type="ELEMENT", result='{"ok": 4}', map_index=3
    )
    for result in (handle_of(app, workflow_id).get(), await handle_of(app, workflow_id).get_async()):
        assert result.ok_value == {
            "n0": TaskResult(ok=0),
            "n1": TaskResult(err=TaskError(error_code="MINE")),
            "n2": None,
            "n3": TaskResult(ok=[]),
        }


async def test_f84_an_unknown_id_is_workflow_not_found(app: Horsies) -> None:
    strange: list[Any] = ["no such workflow", "", "x" * 500, "a\0b", "\ud800", None, 7]
    for workflow_id in strange:
        for result in (handle_of(app, workflow_id).get(), await handle_of(app, workflow_id).get_async()):
            assert code_of(result) is RetrievalCode.WORKFLOW_NOT_FOUND, repr(workflow_id)


async def test_f84_the_database_is_away() -> None:
    with an_app(f"postgresql://u:sesame@127.0.0.1:{refusing_port()}/x") as away:
        result = handle_of(away, "x").get()
    assert code_of(result) is OperationalErrorCode.BROKER_ERROR
    assert "refused" in str(result.err_value.message) and "sesame" not in str(result.err_value)


@pytest.mark.usefixtures("no_polling")
async def test_f84_an_end_rings(tasks: Tasks, hand: Hand, app: Horsies) -> None:
    handle = tasks.chain().start().unwrap()
    waiting = [asyncio.create_task(handle.get_async()), asyncio.create_task(asyncio.to_thread(handle.get))]
    await eventually(lambda: is_waited_for(app.get_broker(), handle.workflow_id))
    await hand.finish(handle, "a")
    await hand.finish(handle, "b", 42)
    assert await asyncio.wait_for(asyncio.gather(*waiting), 15) == [TaskResult(ok=42)] * 2


@pytest.mark.usefixtures("no_polling")
async def test_f84_a_pause_rings(tasks: Tasks, app: Horsies) -> None:
    handle = tasks.chain().start().unwrap()
    waiting = asyncio.create_task(handle.get_async())
    await eventually(lambda: is_waited_for(app.get_broker(), handle.workflow_id))
    await handle.pause_async()
    assert code_of(await asyncio.wait_for(waiting, 15)) is OutcomeCode.WORKFLOW_PAUSED


@pytest.mark.usefixtures("no_polling")
@pytest.mark.parametrize("mode", ["when_waiting", "off"])
async def test_f84_it_rings_in_every_notify_mode(tasks: Tasks, app: Horsies, module_url: str, mode: str) -> None:
    """The modes are about tasks; ends of workflows are rare."""
    await change_mode(module_url, mode)
    try:
        handle = tasks.chain().start().unwrap()
        waiting = asyncio.create_task(handle.get_async())
        await eventually(lambda: is_waited_for(app.get_broker(), handle.workflow_id))
        await handle.cancel_async()
        assert code_of(await asyncio.wait_for(waiting, 15)) is OutcomeCode.WORKFLOW_CANCELLED
    finally:
        await change_mode(module_url, "always")


@pytest.mark.usefixtures("no_polling")
async def test_f84_an_end_while_nobody_listened_is_found_with_the_next_session(
    tasks: Tasks, app: Horsies, clean_db: Db, module_url: str
) -> None:
    handle = tasks.chain().start().unwrap()
    waiting = asyncio.create_task(handle.get_async())
    await eventually(lambda: is_waited_for(app.get_broker(), handle.workflow_id))
    async with await AsyncConnection.connect(module_url) as ending:
        await ending.execute("UPDATE horsies_workflows SET status = 'CANCELLED'")
        await clean_db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'horsies listener'"
        )
    assert code_of(await asyncio.wait_for(waiting, 15)) is OutcomeCode.WORKFLOW_CANCELLED


@pytest.mark.usefixtures("superuser")
async def test_f84_without_a_bell_a_look_every_second_finds_it(tasks: Tasks, app: Horsies, clean_db: Db) -> None:
    handle = tasks.chain().start().unwrap()
    waiting = asyncio.create_task(handle.get_async(15_000))
    await eventually(lambda: is_waited_for(app.get_broker(), handle.workflow_id))
    async with clean_db.transaction():
        await clean_db.execute("SET LOCAL session_replication_role = replica")  # no trigger fires
        await clean_db.execute("UPDATE horsies_workflows SET status = 'CANCELLED'")
    assert code_of(await waiting) is OutcomeCode.WORKFLOW_CANCELLED


@pytest.mark.usefixtures("no_polling")
async def test_f84_everybody_waits_over_one_session(tasks: Tasks, hand: Hand, app: Horsies, clean_db: Db) -> None:
    """Tasks first: for workflows that session does not LISTEN yet when the first of them is waited for."""
    task_id = await given_task(clean_db)
    of_task = asyncio.create_task(app.get_broker().get_result_async(task_id))

    async def listens() -> bool:
        return await app.get_broker().bridge.call(_listens)

    async def _listens() -> bool:
        return app.get_broker().hub.listener.connected

    await eventually(listens)
    handles = [tasks.chain().start().unwrap() for _ in range(10)]
    of_workflows = [asyncio.create_task(handle.get_async()) for handle in handles for _ in range(5)]
    for handle in handles:
        await eventually(lambda handle=handle: is_waited_for(app.get_broker(), handle.workflow_id))  # type: ignore[misc]
    cursor = await clean_db.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'horsies listener'"
    )
    assert await cursor.fetchone() == (1,)
    for handle in handles:
        await handle.cancel_async()
    ends = await asyncio.wait_for(asyncio.gather(*of_workflows), 15)
    assert {code_of(end) for end in ends} == {OutcomeCode.WORKFLOW_CANCELLED}
    await end_task(clean_db, task_id, TaskStatus.COMPLETED, '{"ok": 1}')
    assert await asyncio.wait_for(of_task, 15) == TaskResult(ok=1)


async def test_f84_a_workflow_that_runs_again_is_waited_for_again(tasks: Tasks, hand: Hand) -> None:
    """A FAILED one is not for ever (F-94): a handle does not keep what it heard."""
    handle = tasks.chain().start().unwrap()
    await hand.fail(handle, "a")
    assert code_of(handle.get()) == "BAD"
    assert handle.retry_failed().unwrap()
    assert code_of(handle.get(0)) is RetrievalCode.WAIT_TIMEOUT
    await hand.finish(handle, "a")
    await hand.finish(handle, "b", 2)
    assert handle.get() == TaskResult(ok=2)


async def test_f84_a_result_has_the_type_of_the_output_node(tasks: Tasks, hand: Hand, app: Horsies) -> None:
    node = tasks.order.node(node_id="o")()
    spec = app.workflow("ordering", [node], output=node, definition_key="ordering")
    handle = spec.start().unwrap()
    await hand.finish(handle, "o", {"id": 7, "items": ["x"]})
    order = Order(id=7, items=["x"])
    assert handle.get() == TaskResult(ok=order) == handle_of(app, handle.workflow_id).get()
    stranger = PostgresBroker(PostgresConfig(database_url=app.config.broker.database_url))
    try:
        assert WorkflowHandle[Any](handle.workflow_id, stranger).get() == TaskResult(ok={"id": 7, "items": ["x"]})
    finally:
        stranger.close()
