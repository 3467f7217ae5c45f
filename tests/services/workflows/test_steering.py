"""Pause, resume and cancel through handles and module functions (F-50 to F-54, F-76)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import (
    Horsies,
    OutcomeCode,
    SubWorkflowNode,
    TaskNode,
    TaskResult,
    WorkflowDefinition,
    WorkflowHandle,
    WorkflowStatus,
    pause_workflow,
    pause_workflow_sync,
    recover_stuck_workflows,
    resume_workflow,
    resume_workflow_sync,
)
from horsies.core.types.status import TaskStatus
from tests.doorbell_support import listening
from tests.factories import given_workflow, task_row
from tests.services.workflows.hand import Hand, Tasks

Db = AsyncConnection[Any]
NOT_RUNNING = ["PAUSED", "COMPLETED", "FAILED", "CANCELLED"]
NOT_PAUSED = ["RUNNING", "COMPLETED", "FAILED", "CANCELLED"]


@pytest.fixture
async def nested(tasks: Tasks, app: Horsies, hand: Hand) -> tuple[WorkflowHandle[Any], str, str]:
    """A workflow with a child that has a child of its own, each with a task that is enqueued."""

    class Grandchild(WorkflowDefinition[None]):
        name = "grandchild"
        definition_key = "steering-grandchild"
        leaf = TaskNode(tasks.one)

    class Child(WorkflowDefinition[None]):
        name = "child"
        definition_key = "steering-child"
        below = SubWorkflowNode(Grandchild)
        beside = TaskNode(tasks.one)

    top = TaskNode(tasks.one, node_id="top")
    child = SubWorkflowNode(Child, node_id="child")
    app.__dict__["kept"] = (Child, Grandchild)  # the registry holds them weakly
    handle = app.workflow("parent", [top, child], definition_key="steering-parent").start().unwrap()
    child_id = (await hand.node(handle, "child"))["sub_workflow_id"]
    return handle, child_id, (await hand.node(child_id, "below"))["sub_workflow_id"]


async def test_f50_nothing_starts_while_it_is_paused(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.diamond().start().unwrap()
    await hand.finish(handle, "a")
    await hand.begin(handle, "b")
    waits = await hand.task_of(handle, "c")
    assert await hand.claimable() == {waits}
    assert handle.pause().unwrap() is True
    assert await hand.claimable() == set(), "an enqueued task is not executed"
    await hand.finish(handle, "b", 7)
    assert await hand.states(handle) == "PAUSED a:COMPLETED b:COMPLETED c:ENQUEUED d:PENDING"
    await hand.finish(handle, "c")
    assert await hand.states(handle) == "PAUSED a:COMPLETED b:COMPLETED c:COMPLETED d:PENDING", "nothing propagates"
    d = await hand.node(handle, "d")
    assert (d["deps_completed"], d["task_id"]) == (2, None), "but its counters move"
    assert handle.results().unwrap()["b"] == TaskResult(ok=7), "what ran has stored its result"


async def test_f50_a_retry_does_not_start_while_it_is_paused(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.chain().start().unwrap()
    await hand.begin(handle, "a")
    handle.pause()
    again = await hand.wait_for_retry(handle, "a")
    assert await hand.claimable() == set()
    handle.resume()
    assert await hand.claimable() == {again}


async def test_f50_skips_do_not_spread_while_it_is_paused(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.chain().start().unwrap()
    handle.pause()
    await hand.fail(handle, "a")
    assert await hand.states(handle) == "PAUSED a:FAILED b:PENDING"
    assert handle.resume().unwrap()
    assert await hand.states(handle) == "FAILED a:FAILED b:SKIPPED"


async def test_f51_pause_tells_whether_it_was_running(tasks: Tasks, app: Horsies, hand: Hand, clean_db: Db) -> None:
    handle = tasks.chain().start().unwrap()
    assert handle.pause().unwrap() is True
    assert (await hand.workflow(handle))["paused_at"] is not None
    for status in NOT_RUNNING:
        workflow_id = await given_workflow(clean_db, status=status)
        before = await hand.workflow(workflow_id)
        assert WorkflowHandle[Any](workflow_id, app.get_broker()).pause().unwrap() is False
        assert await hand.workflow(workflow_id) == before


async def test_f51_children_are_paused_too(nested: tuple[WorkflowHandle[Any], str, str], hand: Hand) -> None:
    handle, child, grandchild = nested
    assert len(await hand.claimable()) == 3
    assert handle.pause().unwrap()
    assert await hand.states(handle) == "PAUSED top:ENQUEUED child:RUNNING"
    assert await hand.states(child) == "PAUSED below:RUNNING beside:ENQUEUED"
    assert await hand.states(grandchild) == "PAUSED leaf:ENQUEUED"
    assert await hand.claimable() == set()


async def test_f52_resume_tells_whether_it_was_paused(tasks: Tasks, app: Horsies, hand: Hand, clean_db: Db) -> None:
    handle = tasks.chain().start().unwrap()
    handle.pause()
    assert [handle.resume().unwrap(), handle.resume().unwrap()] == [True, False]
    for status in NOT_PAUSED:
        workflow_id = await given_workflow(clean_db, status=status)
        before = await hand.workflow(workflow_id)
        assert WorkflowHandle[Any](workflow_id, app.get_broker()).resume().unwrap() is False
        assert await hand.workflow(workflow_id) == before


async def test_f52_everything_goes_on_where_it_stood(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.diamond().start().unwrap()
    await hand.finish(handle, "a", 5)
    handle.pause()
    await hand.finish(handle, "b", 6)
    await hand.fail(handle, "c")
    assert handle.resume().unwrap()
    assert await hand.states(handle) == "FAILED a:COMPLETED b:COMPLETED c:FAILED d:SKIPPED", "failed nodes stay failed"


async def test_f52_what_was_enqueued_rings_again(tasks: Tasks, hand: Hand, module_url: str) -> None:
    handle = tasks.chain().start().unwrap()
    handle.pause()
    task_id = await hand.task_of(handle, "a")
    async with listening(module_url) as heard:
        assert handle.resume().unwrap()
        rung = await heard()
    assert task_id in {payload for _, payload in rung}, rung
    assert await hand.claimable() == {task_id}


async def test_f52_nodes_get_their_inputs_when_it_is_resumed(tasks: Tasks, hand: Hand, clean_db: Db) -> None:
    handle = tasks.chain().start().unwrap()
    handle.pause()
    await hand.finish(handle, "a", 42)
    assert handle.resume().unwrap()
    task = await task_row(clean_db, await hand.task_of(handle, "b"))
    assert '"a"' in task["kwargs"] and "42" in task["kwargs"] and await hand.claimable() == {task["id"]}


async def test_f52_children_are_resumed_too(nested: tuple[WorkflowHandle[Any], str, str], hand: Hand) -> None:
    handle, child, grandchild = nested
    handle.pause()
    assert handle.resume().unwrap()
    statuses = [(await hand.workflow(one))["status"] for one in (handle.workflow_id, child, grandchild)]
    assert statuses == ["RUNNING"] * 3 and len(await hand.claimable()) == 3


async def test_f52_of_two_who_resume_one_did(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.diamond().start().unwrap()
    handle.pause()
    await hand.finish(handle, "a")
    told = await asyncio.gather(*(handle.resume_async() for _ in range(8)))
    assert sorted(result.unwrap() for result in told) == [False] * 7 + [True]
    assert await hand.states(handle) == "RUNNING a:COMPLETED b:ENQUEUED c:ENQUEUED d:PENDING"
    assert len(await hand.claimable()) == 2, "nothing is enqueued twice"


async def test_f53_cancel_ends_what_has_not_started(tasks: Tasks, hand: Hand, clean_db: Db) -> None:
    handle = tasks.diamond().start().unwrap()
    await hand.finish(handle, "a")
    await hand.begin(handle, "b")
    enqueued = await hand.task_of(handle, "c")
    assert handle.cancel().unwrap() is None
    assert await hand.states(handle) == "CANCELLED a:COMPLETED b:RUNNING c:SKIPPED d:SKIPPED"
    assert (await task_row(clean_db, enqueued))["status"] == TaskStatus.CANCELLED
    assert (await hand.workflow(handle))["completed_at"] is not None
    assert handle.get().err_value.error_code is OutcomeCode.WORKFLOW_CANCELLED
    await hand.finish(handle, "b", 9)
    assert await hand.states(handle) == "CANCELLED a:COMPLETED b:COMPLETED c:SKIPPED d:SKIPPED", "its real status"
    assert handle.results().unwrap()["b"] == TaskResult(ok=9)


async def test_f53_a_node_that_waits_for_its_retry_fails(tasks: Tasks, hand: Hand, clean_db: Db) -> None:
    handle = tasks.chain().start().unwrap()
    await hand.begin(handle, "a")
    again = await hand.wait_for_retry(handle, "a")
    handle.cancel().unwrap()
    assert await hand.states(handle) == "CANCELLED a:FAILED b:SKIPPED"
    assert (await task_row(clean_db, again))["status"] == TaskStatus.CANCELLED
    assert handle.results().unwrap()["a"].err_value.error_code is OutcomeCode.TASK_CANCELLED


async def test_f53_children_are_cancelled_too(nested: tuple[WorkflowHandle[Any], str, str], hand: Hand) -> None:
    handle, child, grandchild = nested
    await hand.begin(grandchild, "leaf")
    handle.cancel().unwrap()
    assert (await hand.states(handle)).startswith("CANCELLED top:SKIPPED")
    assert (await hand.states(child)).startswith("CANCELLED")
    assert await hand.states(grandchild) == "CANCELLED leaf:RUNNING"
    assert await hand.claimable() == set()
    await hand.finish(grandchild, "leaf")
    assert await hand.states(grandchild) == "CANCELLED leaf:COMPLETED"


async def test_f53_a_second_cancel_or_a_late_one_changes_nothing(tasks: Tasks, hand: Hand) -> None:
    cancelled, completed = tasks.chain().start().unwrap(), tasks.chain().start().unwrap()
    cancelled.cancel()
    await hand.finish(completed, "a")
    await hand.finish(completed, "b")
    before = await hand.everything()
    for handle in (cancelled, completed):
        assert handle.cancel().unwrap() is None and (await handle.cancel_async()).unwrap() is None
    assert await hand.everything() == before
    assert completed.status().unwrap() is WorkflowStatus.COMPLETED


async def test_f53_a_paused_workflow_can_be_cancelled(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.chain().start().unwrap()
    handle.pause()
    handle.cancel().unwrap()
    assert await hand.states(handle) == "CANCELLED a:SKIPPED b:SKIPPED"
    assert handle.resume().unwrap() is False


async def test_f54_module_functions_do_the_same(tasks: Tasks, app: Horsies) -> None:
    broker = app.get_broker()
    workflow_id = tasks.chain().start().unwrap().workflow_id
    assert (await pause_workflow(broker, workflow_id)).unwrap() is True
    assert pause_workflow_sync(broker, workflow_id).unwrap() is False
    assert (await resume_workflow(broker, workflow_id)).unwrap() is True
    assert resume_workflow_sync(broker, workflow_id).unwrap() is False
    assert pause_workflow_sync(broker, workflow_id).unwrap() is True
    assert resume_workflow_sync(broker, workflow_id).unwrap() is True
    for error in (
        pause_workflow_sync(broker, "none").unwrap_err(),
        (await resume_workflow(broker, "none")).unwrap_err(),
    ):
        assert (error.code.value, error.workflow_id) == ("WORKFLOW_NOT_FOUND", "none")


async def test_f76_a_paused_workflow_whose_nodes_have_ended_stays_paused(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.chain().start().unwrap()
    await hand.finish(handle, "a")
    await hand.begin(handle, "b")
    handle.pause()
    await hand.finish(handle, "b", 3)
    assert await hand.states(handle) == "PAUSED a:COMPLETED b:COMPLETED"
    assert handle.get().err_value.error_code is OutcomeCode.WORKFLOW_PAUSED
    assert handle.resume().unwrap() is True
    assert handle.get(0) == TaskResult(ok=3), "resume() has ended it"
    assert (await hand.workflow(handle))["completed_at"] is not None


async def test_f76_that_holds_for_one_that_paused_by_itself(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.chain(on_error="pause").start().unwrap()
    await hand.fail(handle, "a")
    assert await hand.states(handle) == "PAUSED a:FAILED b:PENDING"
    assert handle.resume().unwrap() is True
    assert await hand.states(handle) == "FAILED a:FAILED b:SKIPPED"
    assert handle.get().err_value.error_code == "BAD"


async def test_f52_a_child_whose_definition_is_not_known_here_waits_for_a_worker(
    tasks: Tasks, app: Horsies, hand: Hand, clean_db: Db
) -> None:
    """A program that resumes has perhaps not imported it; that must not fail the node."""

    class Known(WorkflowDefinition[None]):
        name = "known"
        definition_key = "steering-known"
        inside = TaskNode(tasks.one)

    first = TaskNode(tasks.one, node_id="first")
    child = SubWorkflowNode(Known, waits_for=[first], node_id="child")
    handle = app.workflow("parent", [first, child], definition_key="steering-unknown").start().unwrap()
    handle.pause()
    await hand.finish(handle, "first")
    await clean_db.execute("UPDATE horsies_workflow_tasks SET sub_workflow_key = 'elsewhere' WHERE node_id = 'child'")
    assert handle.resume().unwrap() is True
    assert await hand.states(handle) == "RUNNING first:COMPLETED child:READY"


async def test_f52_the_answer_is_about_the_change_and_not_about_what_follows(
    tasks: Tasks, app: Horsies, hand: Hand, clean_db: Db, caplog: pytest.LogCaptureFixture
) -> None:
    """PAUSED has become RUNNING: that the child cannot be written just then is for a worker to mend (R-35)."""

    class Late(WorkflowDefinition[None]):
        name = "late"
        definition_key = "steering-late"
        inside = TaskNode(tasks.one)

    first = TaskNode(tasks.one, node_id="first")
    child = SubWorkflowNode(Late, waits_for=[first], node_id="child")
    handle = app.workflow("parent", [first, child], definition_key="steering-early").start().unwrap()
    handle.pause()
    await hand.finish(handle, "first")
    await clean_db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '40001'; END $$"
    )
    await clean_db.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON horsies_workflows FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    assert handle.resume().unwrap() is True
    await clean_db.execute("DROP FUNCTION refuse CASCADE")
    assert await hand.states(handle) == "RUNNING first:COMPLETED child:READY"
    assert "not now" in caplog.text
    assert (await recover_stuck_workflows(app.get_broker(), 0)).unwrap() == 1
    assert await hand.states(handle) == "RUNNING first:COMPLETED child:RUNNING"


async def test_f51_a_pause_reaches_what_runs_below_a_child_that_is_paused(
    nested: tuple[WorkflowHandle[Any], str, str], app: Horsies, hand: Hand
) -> None:
    handle, child, grandchild = nested
    broker = app.get_broker()
    assert WorkflowHandle[Any](child, broker).pause().unwrap() is True
    assert WorkflowHandle[Any](grandchild, broker).resume().unwrap() is True
    assert handle.pause().unwrap() is True
    assert [(await hand.workflow(one))["status"] for one in (child, grandchild)] == ["PAUSED", "PAUSED"]


async def test_f76_what_has_ended_while_it_was_paused_runs_before_it_is_over(
    tasks: Tasks, hand: Hand, clean_db: AsyncConnection[Any]
) -> None:
    """PAUSED → RUNNING → COMPLETED: two arrows, two updates."""
    handle = tasks.chain().start().unwrap()
    await hand.finish(handle, "a")
    assert handle.pause().unwrap() is True
    await hand.finish(handle, "b")
    await clean_db.execute("CREATE TABLE seen (was text, became text)")
    await clean_db.execute(
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF OLD.status <> NEW.status THEN INSERT INTO seen VALUES (OLD.status, NEW.status); END IF; RETURN NEW; END $$"
    )
    await clean_db.execute("CREATE TRIGGER see AFTER UPDATE ON horsies_workflows FOR EACH ROW EXECUTE FUNCTION see()")
    try:
        assert handle.resume().unwrap() is True
        moves = await (await clean_db.execute("SELECT was, became FROM seen")).fetchall()
    finally:
        await clean_db.execute("DROP FUNCTION see CASCADE")
        await clean_db.execute("DROP TABLE seen")
    assert moves == [("PAUSED", "RUNNING"), ("RUNNING", "COMPLETED")]
