"""What a handle tells about a workflow (F-83, F-85 to F-87), in both forms, and its errors."""

from __future__ import annotations

import dataclasses
import logging
from datetime import datetime
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies import (
    HandleErrorCode,
    HandleOperationError,
    Horsies,
    NodeKey,
    OperationalErrorCode,
    OutcomeCode,
    RetrievalCode,
    SubWorkflowNode,
    TaskError,
    TaskNode,
    TaskResult,
    WorkflowDefinition,
    WorkflowHandle,
    WorkflowStatus,
    WorkflowTaskInfo,
    WorkflowTaskStatus,
    from_node,
)
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.workflows import read
from tests.app_support import an_app
from tests.factories import given_node, given_workflow
from tests.services.test_pool import refusing_port
from tests.services.workflows.hand import Hand, Order, Tasks

Db = AsyncConnection[Any]
KEY: NodeKey[Any] = NodeKey("a")
QUESTIONS: list[tuple[str, tuple[Any, ...]]] = [
    ("status", ()),
    ("get", (0,)),
    ("result_for", (KEY,)),
    ("results", ()),
    ("tasks", ()),
    ("diagram", ()),
]
ORDERS: list[tuple[str, tuple[Any, ...]]] = [
    ("pause", ()),
    ("resume", ()),
    ("retry_node", (KEY,)),
    ("retry_failed", ()),
    ("cancel", ()),
]


def code_of(result: TaskResult[Any, TaskError]) -> object:
    return result.err_value.error_code


async def test_f83_a_handle_made_by_hand_asks_the_same_in_both_forms(tasks: Tasks, hand: Hand, app: Horsies) -> None:
    started = tasks.diamond().start().unwrap()
    await hand.finish(started, "a", 7)
    await hand.fail(started, "b")
    handle: WorkflowHandle[Any] = WorkflowHandle(started.workflow_id, app.get_broker())
    for name, args in QUESTIONS:
        blocking = getattr(handle, name)(*args)
        assert blocking == await getattr(handle, f"{name}_async")(*args) == getattr(started, name)(*args), name
    assert handle.status().unwrap() is WorkflowStatus.RUNNING
    assert handle.result_for(KEY) == TaskResult(ok=7)


async def test_f83_an_order_is_the_same_in_both_forms(tasks: Tasks, hand: Hand) -> None:
    told = []
    for suffix in ("", "_async"):
        handle = tasks.diamond().start().unwrap()
        for name, args in ORDERS:
            result = getattr(handle, name + suffix)(*args)
            told.append((name, (await result if suffix else result).unwrap(), await hand.states(handle)))
    assert told[: len(ORDERS)] == told[len(ORDERS) :]
    assert [answer for _, answer, _ in told[: len(ORDERS)]] == [True, True, False, False, None]
    assert told[-1][2] == "CANCELLED a:SKIPPED b:SKIPPED c:SKIPPED d:SKIPPED"


async def test_f83_results_are_those_of_the_nodes_that_have_ended(tasks: Tasks, hand: Hand, app: Horsies) -> None:
    """In the type of each; the elements of a map are not among them."""
    first, second = tasks.order.node(node_id="o")(), tasks.one.node(node_id="bad")()
    third = tasks.one.node(node_id="later", waits_for=[second])()
    fourth = tasks.one.node(node_id="open")()
    source = tasks.numbers.node(node_id="source")()
    mapped = tasks.double.map_node(over=from_node(source), node_id="m")()
    nodes = [first, second, third, fourth, source, mapped]
    handle = app.workflow("all", nodes, definition_key="all").start().unwrap()
    await hand.finish(handle, "o", {"id": 3})
    await hand.fail(handle, "bad")
    await hand.finish(handle, "source", [5, 6])
    await hand.finish(handle, "m[0]", 10)
    await hand.finish(handle, "m[1]", 12)
    results = handle.results().unwrap()
    assert list(results) == ["o", "bad", "later", "source", "m"]
    assert results["o"] == TaskResult(ok=Order(id=3))
    assert code_of(results["bad"]) == "BAD" and code_of(results["later"]) is OutcomeCode.UPSTREAM_SKIPPED
    assert results["m"] == TaskResult(ok=[TaskResult(ok=10), TaskResult(ok=12)]), "a map gives results"
    assert handle.result_for(mapped) == results["m"] and handle.result_for(first) == results["o"]


async def test_f85_a_result_is_there_when_the_node_has_ended(app: Horsies, clean_db: Db) -> None:
    columns: list[tuple[dict[str, Any], object]] = [
        ({"status": "PENDING"}, RetrievalCode.RESULT_NOT_READY),
        ({"status": "READY"}, RetrievalCode.RESULT_NOT_READY),
        ({"status": "ENQUEUED"}, RetrievalCode.RESULT_NOT_READY),
        ({"status": "RUNNING"}, RetrievalCode.RESULT_NOT_READY),
        ({"status": "COMPLETED", "result": '{"ok": 5}'}, 5),
        ({"status": "FAILED", "result": '{"err": {"error_code": "MINE"}}'}, "MINE"),
        ({"status": "SKIPPED"}, OutcomeCode.UPSTREAM_SKIPPED),
    ]
    workflow_id = await given_workflow(clean_db, status="RUNNING")
    handle: WorkflowHandle[Any] = WorkflowHandle(workflow_id, app.get_broker())
    for index, (node, expected) in enumerate(columns):
        await given_node(clean_db, workflow_id, task_index=index, **node)
        key: NodeKey[Any] = NodeKey(f"n{index}")
        for result in (handle.result_for(key), await handle.result_for_async(key)):
            assert (result.ok if result.is_ok() else code_of(result)) == expected, node


async def test_f85_what_is_not_there(tasks: Tasks, app: Horsies) -> None:
    handle = tasks.chain().start().unwrap()
    assert code_of(handle.result_for(NodeKey("nobody"))) is RetrievalCode.TASK_NOT_FOUND
    nowhere = tasks.one.node()()
    for result in (handle.result_for(nowhere), await handle.result_for_async(nowhere)):
        assert code_of(result) is RetrievalCode.TASK_NOT_FOUND, "it has no id"
    for unknown in ("no such workflow", "a\0b"):
        missing: WorkflowHandle[Any] = WorkflowHandle(unknown, app.get_broker())
        assert code_of(missing.result_for(KEY)) is RetrievalCode.WORKFLOW_NOT_FOUND
    with an_app(f"postgresql://u@127.0.0.1:{refusing_port()}/x") as away:
        lost: WorkflowHandle[Any] = WorkflowHandle(handle.workflow_id, away.get_broker())
        assert code_of(lost.result_for(KEY)) is OperationalErrorCode.BROKER_ERROR


async def test_f85_it_is_one_statement(module_url: str, clean_db: Db, caplog: pytest.LogCaptureFixture) -> None:
    with an_app(module_url, postgres={"echo": True}) as app:
        tasks = Tasks(app)
        handle = tasks.chain().start().unwrap()
        with caplog.at_level(logging.INFO, "horsies.sql"):
            caplog.clear()
            assert code_of(handle.result_for(KEY)) is RetrievalCode.RESULT_NOT_READY
        assert len([record for record in caplog.records if record.name == "horsies.sql"]) == 1


async def test_f85_a_node_is_found_in_each_of_its_workflows(tasks: Tasks, hand: Hand, app: Horsies) -> None:
    """The same object has other ids in other workflows; the handle knows which is meant."""
    shared, other = tasks.order.node()(), tasks.one.node()()
    first = app.workflow("first", [shared], definition_key="first").start().unwrap()
    second = app.workflow("second", [other, shared], definition_key="second").start().unwrap()
    await hand.finish(first, "order:0", {"id": 1})
    await hand.finish(second, "order:1", {"id": 2})
    assert first.result_for(shared) == TaskResult(ok=Order(id=1))
    assert second.result_for(shared) == TaskResult(ok=Order(id=2))


async def test_f85_types_are_known_by_node_by_app_or_not_at_all(
    tasks: Tasks, hand: Hand, app: Horsies, module_url: str
) -> None:
    class Ordering(WorkflowDefinition[Order]):
        name = "ordering"
        definition_key = "handle-ordering"
        o = TaskNode(tasks.order)

        class Meta:
            output = "o"

    child = SubWorkflowNode(Ordering, node_id="child")
    handle = app.workflow("parent", [child], definition_key="handle-parent").start().unwrap()
    await hand.finish((await hand.node(handle, "child"))["sub_workflow_id"], "o", {"id": 4, "items": []})
    by_hand: WorkflowHandle[Any] = WorkflowHandle(handle.workflow_id, app.get_broker())
    key: NodeKey[Any] = NodeKey("child")
    assert handle.result_for(child) == TaskResult(ok=Order(id=4)) == by_hand.result_for(key)
    stranger = PostgresBroker(PostgresConfig(database_url=module_url))
    try:
        inside: WorkflowHandle[Any] = WorkflowHandle((await hand.node(handle, "child"))["sub_workflow_id"], stranger)
        assert inside.result_for(NodeKey("o")) == TaskResult(ok={"id": 4, "items": []}), "plain JSON"
    finally:
        stranger.close()


async def test_f86_infos_tell_of_every_node_and_element(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.mapping(max_parallel=1).start().unwrap()
    await hand.begin(handle, "source")
    await hand.finish(handle, "source", [5, 6])
    await hand.begin(handle, "m[0]")
    infos = handle.tasks().unwrap()
    assert all(isinstance(info, WorkflowTaskInfo) for info in infos)
    assert [(info.node_id, info.index, info.name, info.status.value) for info in infos] == [
        ("source", 0, "numbers", "COMPLETED"),
        ("m", 1, "double", "RUNNING"),
        ("m[0]", 2, "double", "RUNNING"),
        ("m[1]", 3, "double", "READY"),
    ]
    source, mapped, first, second = infos
    assert source.result == TaskResult(ok=[5, 6]) and isinstance(source.completed_at, datetime)
    assert source.started_at is not None and source.started_at <= source.completed_at
    assert (mapped.result, first.result, first.completed_at, second.started_at) == (None, None, None, None)
    assert isinstance(first.started_at, datetime) and first.started_at.tzinfo is not None
    await hand.fail(handle, "m[0]")
    failed = handle.tasks().unwrap()[2]
    assert failed.status is WorkflowTaskStatus.FAILED and failed.result is not None and code_of(failed.result) == "BAD"
    handle.cancel()
    skipped = handle.tasks().unwrap()[3]
    assert skipped.status is WorkflowTaskStatus.SKIPPED and skipped.result is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        skipped.index = 9  # type: ignore[misc]


async def test_f87_a_workflow_that_is_not_there(app: Horsies) -> None:
    for unknown in ("no such workflow", "a\0b", "", "x" * 99):
        handle: WorkflowHandle[Any] = WorkflowHandle(unknown, app.get_broker())
        for name, args in [*QUESTIONS, *ORDERS]:
            if name in ("get", "result_for"):
                continue
            for result in (getattr(handle, name)(*args), await getattr(handle, f"{name}_async")(*args)):
                error = result.unwrap_err()
                assert isinstance(error, HandleOperationError)
                assert (error.code, error.retryable, error.workflow_id) == (
                    HandleErrorCode.WORKFLOW_NOT_FOUND,
                    False,
                    unknown,
                ), name
                assert error.message
    with pytest.raises(dataclasses.FrozenInstanceError):
        error.code = HandleErrorCode.INTERNAL_FAILED  # type: ignore[misc]


async def test_f87_a_database_that_is_away() -> None:
    with an_app(f"postgresql://u:sesame@127.0.0.1:{refusing_port()}/x") as away:
        handle: WorkflowHandle[Any] = WorkflowHandle("x", away.get_broker())
        for result in (handle.status(), await handle.pause_async(), handle.tasks(), await handle.retry_failed_async()):
            error = result.unwrap_err()
            assert (error.code, error.retryable) == (HandleErrorCode.DB_OPERATION_FAILED, True)
            assert isinstance(error.exception, psycopg.OperationalError) and "sesame" not in str(error)


async def test_f87_the_loop_and_everything_else(app: Horsies) -> None:
    broker = app.get_broker()
    handle: WorkflowHandle[Any] = WorkflowHandle("x", broker)

    async def on_the_loop() -> Any:
        return handle.status()

    error = (await broker.bridge.call(on_the_loop)).unwrap_err()
    assert (error.code, error.retryable) == (HandleErrorCode.LOOP_RUNNER_FAILED, False)

    async def broken(broker: PostgresBroker, workflow_id: str) -> None:
        raise RuntimeError("odd")

    for result in (read.run(broker, "x", broken), await read.run_async(broker, "x", broken)):
        error = result.unwrap_err()
        assert (error.code, error.retryable) == (HandleErrorCode.INTERNAL_FAILED, False)
        assert isinstance(error.exception, RuntimeError) and "odd" in error.message


async def test_f83_a_diagram_has_every_node_and_edge_with_its_state(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.diamond().start().unwrap()
    await hand.finish(handle, "a")
    await hand.fail(handle, "b")
    drawn = handle.diagram().unwrap().splitlines()
    assert drawn[0] == "flowchart TD"
    assert '    n0["a<br/>COMPLETED"]:::COMPLETED' in drawn
    assert '    n1["b<br/>FAILED: BAD"]:::FAILED' in drawn
    assert '    n3["d<br/>SKIPPED"]:::SKIPPED' in drawn or '    n3["d<br/>PENDING"]:::PENDING' in drawn
    assert [line.strip() for line in drawn if "-->" in line] == ["n0 --> n1", "n0 --> n2", "n1 --> n3", "n2 --> n3"]
