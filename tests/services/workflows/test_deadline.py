"""A deadline for the whole workflow (F-96), through the public API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import (
    Err,
    Horsies,
    OutcomeCode,
    SubWorkflowNode,
    SuccessCase,
    SuccessPolicy,
    TaskNode,
    WorkflowDefinition,
    WorkflowHandle,
    WorkflowStartErrorCode,
    WorkflowStatus,
    recover_stuck_workflows,
)
from tests.factories import task_row
from tests.services.workflows.hand import Hand, Tasks

Db = AsyncConnection[Any]


def soon(**later: float) -> datetime:
    return datetime.now(UTC) + timedelta(**later)


async def let_it_pass(db: Db) -> None:
    await db.execute("UPDATE horsies_workflows SET good_until = now() - interval '1 s' WHERE good_until IS NOT NULL")


def code_of(handle: WorkflowHandle[Any]) -> object:
    return handle.get().err_value.error_code


@pytest.mark.parametrize("good_until", [datetime(2030, 1, 1), "2030-01-01T00:00Z", 5])
async def test_f96_a_deadline_has_a_time_zone(tasks: Tasks, hand: Hand, good_until: Any) -> None:
    for result in (
        tasks.chain().start(good_until=good_until),
        await tasks.chain().start_async(good_until=good_until),
    ):
        assert isinstance(result, Err)
        assert result.err_value.code is WorkflowStartErrorCode.VALIDATION_FAILED
        assert "good_until" in result.err_value.message
    assert await hand.everything() == [None, None, None]


async def test_f96_it_is_copied_to_children_and_tasks_where_it_is_earlier(
    tasks: Tasks, hand: Hand, app: Horsies, clean_db: Db
) -> None:
    class Child(WorkflowDefinition[None]):
        name = "child"
        definition_key = "deadline-child"
        inside = TaskNode(tasks.one)

    deadline, earlier, later = soon(hours=2), soon(hours=1), soon(hours=3)
    nodes = [
        tasks.one.node(node_id="plain")(),
        tasks.one.node(node_id="early", good_until=earlier)(),
        tasks.one.node(node_id="late", good_until=later)(),
        SubWorkflowNode(Child, node_id="child"),
    ]
    handle = app.workflow("parent", nodes, definition_key="deadlines").start(good_until=deadline).unwrap()

    async def until(workflow: Any, node_id: str) -> datetime:
        return datetime.fromisoformat((await task_row(clean_db, await hand.task_of(workflow, node_id)))["good_until"])

    assert [await until(handle, node_id) for node_id in ("plain", "early", "late")] == [deadline, earlier, deadline]
    child = (await hand.node(handle, "child"))["sub_workflow_id"]
    assert await until(child, "inside") == deadline
    assert datetime.fromisoformat((await hand.workflow(child))["good_until"]) == deadline


async def test_f96_a_later_node_gets_it_too(tasks: Tasks, hand: Hand, clean_db: Db) -> None:
    deadline = soon(hours=2)
    handle = tasks.chain().start(good_until=deadline).unwrap()
    await hand.finish(handle, "a")
    task = await task_row(clean_db, await hand.task_of(handle, "b"))
    assert datetime.fromisoformat(task["good_until"]) == deadline


async def test_f96_when_it_has_passed_what_runs_may_finish_and_nothing_else(
    tasks: Tasks, hand: Hand, clean_db: Db
) -> None:
    handle = tasks.diamond().start(good_until=soon(hours=1)).unwrap()
    await hand.finish(handle, "a")
    await hand.begin(handle, "b")
    waiting = await hand.task_of(handle, "c")
    await let_it_pass(clean_db)
    await hand.finish(handle, "b")
    assert await hand.states(handle) == "FAILED a:COMPLETED b:COMPLETED c:SKIPPED d:SKIPPED"
    assert (await task_row(clean_db, waiting))["status"] == "CANCELLED"
    assert code_of(handle) is OutcomeCode.WORKFLOW_EXPIRED


async def test_f96_one_that_still_runs_a_node_ends_with_it(
    tasks: Tasks, hand: Hand, app: Horsies, clean_db: Db
) -> None:
    handle = tasks.diamond().start(good_until=soon(hours=1)).unwrap()
    await hand.finish(handle, "a")
    await hand.begin(handle, "b")
    await let_it_pass(clean_db)
    assert (await recover_stuck_workflows(app.get_broker())).unwrap() > 0
    assert await hand.states(handle) == "RUNNING a:COMPLETED b:RUNNING c:SKIPPED d:SKIPPED"
    await hand.finish(handle, "b")
    assert handle.status().unwrap() is WorkflowStatus.FAILED and code_of(handle) is OutcomeCode.WORKFLOW_EXPIRED
    assert handle.retry_failed().unwrap() is False


async def test_f96_a_paused_one_ends_too(tasks: Tasks, hand: Hand, app: Horsies, clean_db: Db) -> None:
    handle = tasks.chain().start(good_until=soon(hours=1)).unwrap()
    handle.pause()
    await let_it_pass(clean_db)
    await recover_stuck_workflows(app.get_broker())
    assert await hand.states(handle) == "FAILED a:SKIPPED b:SKIPPED"
    assert code_of(handle) is OutcomeCode.WORKFLOW_EXPIRED


async def test_f96_whatever_the_success_policy_says(tasks: Tasks, hand: Hand, app: Horsies, clean_db: Db) -> None:
    a = tasks.one.node(node_id="a")()
    b = tasks.one.node(node_id="b", waits_for=[a])()
    policy = SuccessPolicy(cases=[SuccessCase(required=[a])], optional=[b])
    spec = app.workflow("lenient", [a, b], success_policy=policy, definition_key="lenient")
    handle = spec.start(good_until=soon(hours=1)).unwrap()
    await hand.begin(handle, "a")
    await let_it_pass(clean_db)
    await hand.finish(handle, "a")
    assert await hand.states(handle) == "FAILED a:COMPLETED b:SKIPPED"
    assert code_of(handle) is OutcomeCode.WORKFLOW_EXPIRED


async def test_f96_a_deadline_in_the_past_is_no_mistake(tasks: Tasks, hand: Hand, app: Horsies) -> None:
    """As for tasks (T-42): it is written, and ends."""
    handle = tasks.chain().start(good_until=soon(seconds=-1)).unwrap()
    assert await hand.claimable() == set()
    await recover_stuck_workflows(app.get_broker())
    assert code_of(handle) is OutcomeCode.WORKFLOW_EXPIRED
