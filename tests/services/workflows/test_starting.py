"""Starting workflows (F-80 to F-82): one transaction, errors as values, and no second workflow from a second try."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import (
    Err,
    ErrorCode,
    Horsies,
    Ok,
    SubWorkflowNode,
    TaskNode,
    WorkflowDefinition,
    WorkflowSpec,
    WorkflowStartError,
    WorkflowStartErrorCode,
    WorkflowValidationError,
    start_workflow,
    start_workflow_async,
)
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.producer import send
from tests.app_support import an_app
from tests.conftest import with_database
from tests.services.test_pool import refusing_port
from tests.services.workflows.hand import Hand, Tasks

Db = AsyncConnection[Any]
VALIDATION, ENQUEUE = WorkflowStartErrorCode.VALIDATION_FAILED, WorkflowStartErrorCode.ENQUEUE_FAILED
INTERNAL, NO_BROKER = WorkflowStartErrorCode.INTERNAL_FAILED, WorkflowStartErrorCode.BROKER_NOT_CONFIGURED
NOTHING = [None, None, None]


async def refuse(db: Db, sqlstate: str, *, times: int = 1_000_000) -> None:
    """The next inserts of nodes fail; a sequence counts, because it does not go back with a transaction."""
    await db.execute("DROP SEQUENCE IF EXISTS refusals")
    await db.execute("CREATE SEQUENCE refusals")
    await db.execute(
        f"""
        CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('refusals') <= {times} THEN
                RAISE EXCEPTION 'not now' USING ERRCODE = '{sqlstate}';
            END IF;
            RETURN NULL;
        END $$
        """.encode()
    )
    await db.execute(
        "CREATE TRIGGER refuse AFTER INSERT ON horsies_workflow_tasks FOR EACH STATEMENT EXECUTE FUNCTION refuse()"
    )


async def accept(db: Db) -> None:
    await db.execute("DROP TRIGGER refuse ON horsies_workflow_tasks")


def error_of(result: Any) -> WorkflowStartError:
    assert isinstance(result, Err), result
    error = result.err_value
    assert isinstance(error, WorkflowStartError)
    return error


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, without the time they take."""
    noted: list[float] = []

    async def note(seconds: float) -> None:
        noted.append(seconds)

    monkeypatch.setattr(send, "wait", note)
    return noted


async def test_f80_a_start_writes_the_workflow_its_nodes_and_the_first_tasks(tasks: Tasks, hand: Hand) -> None:
    handles = [tasks.diamond().start().unwrap(), (await tasks.diamond().start_async()).unwrap()]
    for handle in handles:
        assert await hand.states(handle) == "RUNNING a:ENQUEUED b:PENDING c:PENDING d:PENDING"
        workflow = await hand.workflow(handle)
        assert (workflow["name"], workflow["definition_key"], workflow["open_nodes"]) == ("diamond", "diamond", 4)
        assert await hand.claimable() >= {await hand.task_of(handle, "a")}
        assert (await hand.node(handle, "b"))["task_id"] is None
    assert len(await hand.claimable()) == 2 and handles[0].workflow_id != handles[1].workflow_id


async def test_f80_it_is_one_transaction(tasks: Tasks, hand: Hand, clean_db: Db) -> None:
    await refuse(clean_db, "22000")
    try:
        assert error_of(tasks.diamond().start()).code is VALIDATION
        assert await hand.everything() == NOTHING
    finally:
        await accept(clean_db)


async def test_f80_module_functions_take_id_and_time(tasks: Tasks, hand: Hand, app: Horsies) -> None:
    sent_at = datetime(2020, 1, 2, tzinfo=UTC)
    first, second = str(uuid.uuid4()), str(uuid.uuid4()).upper()
    started = start_workflow(tasks.chain(), app.get_broker(), first, sent_at)
    assert started.unwrap().workflow_id == first
    again = await start_workflow_async(tasks.chain(), app.get_broker(), second, sent_at)
    assert again.unwrap().workflow_id == second.lower(), "in one spelling"
    for workflow_id in (first, second.lower()):
        assert datetime.fromisoformat((await hand.workflow(workflow_id))["sent_at"]) == sent_at


A_UUID = "93c44b60-da21-4cee-a439-e4678df4619d"


@pytest.mark.parametrize("workflow_id", ["", "x", "7" * 36, A_UUID.replace("-", ""), f"{A_UUID} ", 7])
async def test_f80_an_id_that_is_no_uuid_is_refused(tasks: Tasks, hand: Hand, workflow_id: Any) -> None:
    for result in (tasks.chain().start(workflow_id), await tasks.chain().start_async(workflow_id)):
        error = error_of(result)
        assert (error.code, error.workflow_id, error.retryable) == (VALIDATION, workflow_id, False)
        assert isinstance(error.exception, WorkflowValidationError)
        assert error.exception.code is ErrorCode.WORKFLOW_INVALID_ID
    assert await hand.everything() == NOTHING


async def test_f80_an_id_that_is_taken_is_the_same_start_again_or_a_mistake(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.chain().start().unwrap()
    before = await hand.everything()
    assert tasks.chain().start(handle.workflow_id).unwrap().workflow_id == handle.workflow_id
    error = error_of(tasks.diamond().start(handle.workflow_id))
    assert (error.code, error.workflow_name) == (VALIDATION, "diamond") and "'chain'" in error.message
    assert await hand.everything() == before


async def test_f80_children_that_wait_for_nothing_start_with_their_parent(
    tasks: Tasks, hand: Hand, app: Horsies
) -> None:
    class Child(WorkflowDefinition[int]):
        name = "child"
        definition_key = "starting-child"
        inside = TaskNode(tasks.one)

        class Meta:
            output = "inside"

    now = SubWorkflowNode(Child, node_id="now")
    first = TaskNode(tasks.one, node_id="first")
    later = SubWorkflowNode(Child, waits_for=[first], node_id="later")
    handle = app.workflow("parent", [now, first, later], definition_key="starting-parent").start().unwrap()
    assert await hand.states(handle) == "RUNNING now:RUNNING first:ENQUEUED later:PENDING"
    child = (await hand.node(handle, "now"))["sub_workflow_id"]
    assert await hand.states(child) == "RUNNING inside:ENQUEUED"
    assert (await hand.workflow(child))["parent_workflow_id"] == handle.workflow_id


async def test_f81_a_spec_without_an_app_has_no_broker(tasks: Tasks) -> None:
    spec = WorkflowSpec("alone", [tasks.one.node()()], definition_key="alone")
    given = str(uuid.uuid4())
    for result in (spec.start(given), await spec.start_async(given)):
        error = error_of(result)
        assert (error.code, error.retryable, error.workflow_name) == (NO_BROKER, False, "alone")
        assert error.workflow_id == given
    assert uuid.UUID(error_of(spec.start()).workflow_id), "there always is one"
    assert error_of(start_workflow(spec, None)).code is NO_BROKER  # type: ignore[arg-type]


async def test_f81_an_error_is_frozen_and_says_whether_it_may_pass(module_url: str, tasks: Tasks, app: Horsies) -> None:
    with an_app(f"postgresql://u@127.0.0.1:{refusing_port()}/x") as away:
        spec = Tasks(away).chain()
        for result in (spec.start(), await spec.start_async()):
            error = error_of(result)
            assert (error.code, error.retryable, error.workflow_name) == (ENQUEUE, True, "chain")
            assert uuid.UUID(error.workflow_id) and isinstance(error.exception, Exception)
    with pytest.raises(dataclasses.FrozenInstanceError):
        error.retryable = False  # type: ignore[misc]
    with an_app(with_database(module_url, "is_not_there")) as missing:
        error = error_of(Tasks(missing).chain().start())
        assert (error.code, error.retryable) == (ENQUEUE, False), error.message


async def test_f81_from_the_loop_of_the_broker_itself_a_blocking_start_is_internal(tasks: Tasks, app: Horsies) -> None:
    async def on_the_loop() -> Any:
        return tasks.chain().start()

    error = error_of(await app.get_broker().bridge.call(on_the_loop))
    assert (error.code, error.retryable) == (INTERNAL, False)


async def test_f81_nothing_is_started_while_modules_are_imported(tasks: Tasks, hand: Hand, app: Horsies) -> None:
    app.suppress_sends()
    error = error_of(tasks.chain().start())
    assert error.code is VALIDATION and "imported" in error.message
    assert await hand.everything() == NOTHING
    app.suppress_sends(False)
    assert isinstance(tasks.chain().start(), Ok)


async def test_f81_without_an_app_at_the_broker_there_are_no_children(
    tasks: Tasks, hand: Hand, app: Horsies, module_url: str
) -> None:
    class Orphan(WorkflowDefinition[None]):
        name = "orphan"
        definition_key = "orphan"
        inside = TaskNode(tasks.one)

    spec = app.workflow("parent", [SubWorkflowNode(Orphan)], definition_key="orphans")
    broker = PostgresBroker(PostgresConfig(database_url=module_url))
    try:
        error = error_of(start_workflow(spec, broker))
        assert error.code is VALIDATION and isinstance(error.exception, WorkflowValidationError)
        assert error.exception.code is ErrorCode.WORKFLOW_SUBWORKFLOW_APP_MISSING
        assert await hand.everything() == NOTHING
        assert isinstance(start_workflow(tasks.chain(), broker), Ok), "others need none"
    finally:
        broker.close()


async def test_f82_a_failed_start_is_tried_again_under_its_id(tasks: Tasks, hand: Hand, clean_db: Db) -> None:
    spec, good_until = tasks.chain(), datetime.now(UTC) + timedelta(hours=1)
    for retry_async in (False, True):
        await refuse(clean_db, "40001")
        error = error_of(spec.start(good_until=good_until))
        assert (error.code, error.retryable) == (ENQUEUE, True)
        await accept(clean_db)
        retried = await spec.retry_start_async(error) if retry_async else spec.retry_start(error)
        assert retried.unwrap().workflow_id == error.workflow_id
        workflow = await hand.workflow(error.workflow_id)
        assert datetime.fromisoformat(workflow["good_until"]) == good_until, "nor is anything else forgotten"
        assert datetime.fromisoformat(workflow["sent_at"]) == error.sent_at


async def test_f82_a_start_that_had_landed_unseen_is_not_written_again(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.chain().start().unwrap()
    before = await hand.everything()
    unseen = WorkflowStartError(ENQUEUE, "the answer was lost", "chain", handle.workflow_id, retryable=True)
    changed = tasks.chain(definition_key="chain 2")
    for retried in (tasks.chain().retry_start(unseen), await changed.retry_start_async(unseen)):
        assert retried.unwrap().workflow_id == handle.workflow_id, "contents are not compared"
    assert await hand.everything() == before


async def test_f82_only_enqueue_failed_of_the_same_workflow_is_tried_again(tasks: Tasks, hand: Hand) -> None:
    spec, workflow_id = tasks.chain(), str(uuid.uuid4())
    wrong: list[Any] = [
        *(WorkflowStartError(code, "", "chain", workflow_id) for code in WorkflowStartErrorCode if code is not ENQUEUE),
        WorkflowStartError(ENQUEUE, "", "another", workflow_id, retryable=True),
        None,
        "no",
    ]
    for error in wrong:
        for result in (spec.retry_start(error), await spec.retry_start_async(error)):
            assert error_of(result).code is VALIDATION, error
    assert await hand.everything() == NOTHING


async def test_t51_f82_a_start_is_tried_three_times_more(
    tasks: Tasks, hand: Hand, app: Horsies, clean_db: Db, pauses: list[float]
) -> None:
    for failures, expected in ((2, [0.2, 0.4]), (4, [0.2, 0.4, 0.8])):
        for is_async in (False, True):
            pauses.clear()
            await refuse(clean_db, "40001", times=failures)
            spec, broker = tasks.chain(), app.get_broker()
            if is_async:
                result = await start_workflow_async(spec, broker, resend_on_transient_err=True)
            else:
                result = start_workflow(spec, broker, resend_on_transient_err=True)
            await accept(clean_db)
            assert pauses == expected
            assert isinstance(result, Ok) is (failures == 2)
    pauses.clear()
    await refuse(clean_db, "40001")
    assert error_of(tasks.chain().start()).retryable
    assert pauses == [], "only if asked to"
    await accept(clean_db)


async def test_t51_f82_the_app_says_whether_its_workflows_are_tried_again(
    module_url: str, clean_db: Db, pauses: list[float]
) -> None:
    with an_app(module_url, resend_on_transient_err=True) as app:
        await refuse(clean_db, "40001", times=1)
        assert isinstance(await Tasks(app).chain().start_async(), Ok)
        await accept(clean_db)
    assert pauses == [0.2]


async def test_f80_starts_at_once_do_not_get_in_each_others_way(tasks: Tasks, hand: Hand) -> None:
    spec = tasks.chain()
    started = await asyncio.gather(*(spec.start_async() for _ in range(20)))
    assert len({result.unwrap().workflow_id for result in started}) == 20
    assert len(await hand.claimable()) == 20
