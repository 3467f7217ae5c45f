"""Failed nodes run again (F-94), through handles."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import (
    Horsies,
    NodeKey,
    SubWorkflowNode,
    TaskNode,
    TaskResult,
    WorkflowDefinition,
    WorkflowHandle,
    WorkflowStatus,
    from_node,
)
from horsies.core.workflows import step
from tests.factories import given_attempt, task_row
from tests.services.workflows.hand import Hand, Tasks

Db = AsyncConnection[Any]


def key(node_id: str) -> NodeKey[Any]:
    return NodeKey(node_id)


async def test_f94_a_failed_node_runs_again_as_a_new_task(tasks: Tasks, hand: Hand, clean_db: Db) -> None:
    spec = tasks.diamond()
    handle = spec.start().unwrap()
    await hand.finish(handle, "a", 5)
    await hand.fail(handle, "b")
    await hand.finish(handle, "c", 6)
    assert await hand.states(handle) == "FAILED a:COMPLETED b:FAILED c:COMPLETED d:SKIPPED"
    old = await hand.task_of(handle, "b")
    assert handle.retry_node(spec.tasks[1]).unwrap() is True
    assert await hand.states(handle) == "RUNNING a:COMPLETED b:ENQUEUED c:COMPLETED d:PENDING"
    workflow, b, d = await hand.workflow(handle), await hand.node(handle, "b"), await hand.node(handle, "d")
    assert [workflow[column] for column in ("result", "error", "error_code", "completed_at")] == [None] * 4
    assert workflow["open_nodes"] == 2
    assert b["task_id"] != old and b["previous_task_ids"] == [old]
    assert [b["result"], b["error_code"], b["completed_at"]] == [None] * 3
    assert (d["deps_completed"], d["deps_failed"], d["deps_skipped"]) == (1, 0, 0), "counted anew"
    new = await task_row(clean_db, b["task_id"])
    assert new["status"] == "PENDING" and json.loads(new["kwargs"])["a"] == {"ok": 5}, "with its inputs"
    await hand.finish(handle, "b", 7)
    await hand.finish(handle, "d", 8)
    assert handle.status().unwrap() is WorkflowStatus.COMPLETED
    assert handle.results().unwrap()["d"] == TaskResult(ok=8)


async def test_f94_history_is_kept(tasks: Tasks, hand: Hand, app: Horsies, clean_db: Db) -> None:
    handle = tasks.chain().start().unwrap()
    await hand.fail(handle, "a")
    old = await hand.task_of(handle, "a")
    await given_attempt(clean_db, old, error_code="BAD")
    assert (await handle.retry_node_async(key("a"))).unwrap() is True
    info = app.get_task_info(old, include_attempts=True, include_result=True).unwrap()
    assert info is not None and info.status == "FAILED" and info.attempts is not None
    assert [attempt.error_code for attempt in info.attempts] == ["BAD"]
    assert info.result is not None and info.result.err_value.error_code == "BAD"


async def test_f94_retry_failed_takes_all_of_them(tasks: Tasks, hand: Hand, app: Horsies) -> None:
    first, second, third = (tasks.one.node(node_id=name)() for name in ("x", "y", "z"))
    after = tasks.one.node(node_id="after", waits_for=[first, second, third])()
    nodes = [first, second, third, after]
    handle = app.workflow("three", nodes, definition_key="three").start().unwrap()
    await hand.fail(handle, "x")
    await hand.fail(handle, "y")
    await hand.finish(handle, "z")
    assert (await handle.retry_failed_async()).unwrap() is True
    assert await hand.states(handle) == "RUNNING x:ENQUEUED y:ENQUEUED z:COMPLETED after:PENDING"
    assert len(await hand.claimable()) == 2


async def test_f94_a_paused_workflow_goes_on(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.diamond(on_error="pause").start().unwrap()
    await hand.finish(handle, "a")
    await hand.fail(handle, "b")
    assert await hand.states(handle) == "PAUSED a:COMPLETED b:FAILED c:ENQUEUED d:PENDING"
    assert handle.retry_node(key("b")).unwrap() is True
    assert await hand.states(handle) == "RUNNING a:COMPLETED b:ENQUEUED c:ENQUEUED d:PENDING"
    assert len(await hand.claimable()) == 2, "as by resume()"


async def test_f94_its_siblings_run_on(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.diamond().start().unwrap()
    await hand.finish(handle, "a")
    await hand.begin(handle, "c")
    running = await hand.task_of(handle, "c")
    await hand.fail(handle, "b")
    assert handle.retry_failed().unwrap() is True
    assert await hand.task_of(handle, "c") == running and (await hand.node(handle, "c"))["status"] == "RUNNING"
    await asyncio.gather(hand.finish(handle, "b"), hand.finish(handle, "c"))
    assert await hand.states(handle) == "RUNNING a:COMPLETED b:COMPLETED c:COMPLETED d:ENQUEUED"


async def test_f94_the_end_of_the_old_task_counts_no_more(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.chain().start().unwrap()
    await hand.fail(handle, "a")
    old = await hand.task_of(handle, "a")
    handle.retry_failed()
    await hand.advance(old)
    assert await hand.states(handle) == "RUNNING a:ENQUEUED b:PENDING"


async def test_f94_only_the_failed_elements_of_a_map_run_again(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.mapping().start().unwrap()
    await hand.finish(handle, "source", [1, 2, 3])
    await hand.finish(handle, "m[0]", 2)
    await hand.fail(handle, "m[1]")
    await hand.finish(handle, "m[2]", 6)
    assert (await hand.states(handle)).startswith("FAILED source:COMPLETED m:FAILED")
    kept = [await hand.task_of(handle, f"m[{position}]") for position in (0, 2)]
    assert handle.retry_node(key("m")).unwrap() is True
    states = "RUNNING source:COMPLETED m:RUNNING m[0]:COMPLETED m[1]:ENQUEUED m[2]:COMPLETED"
    assert await hand.states(handle) == states
    assert [await hand.task_of(handle, f"m[{position}]") for position in (0, 2)] == kept
    await hand.finish(handle, "m[1]", 4)
    assert handle.get() == TaskResult(ok=[TaskResult(ok=2), TaskResult(ok=4), TaskResult(ok=6)])


async def test_f94_the_node_of_a_failed_child_gets_a_new_child(tasks: Tasks, hand: Hand, app: Horsies) -> None:
    """A child whose parent has taken its end is not retried itself: its parent's node is."""

    class Child(WorkflowDefinition[int]):
        name = "child"
        definition_key = "retrying-child"
        inside = TaskNode(tasks.one)

        class Meta:
            output = "inside"

    node = SubWorkflowNode(Child, node_id="child")
    handle = app.workflow("parent", [node], output=node, definition_key="retrying-parent").start().unwrap()
    old = (await hand.node(handle, "child"))["sub_workflow_id"]
    await hand.fail(old, "inside")
    assert await hand.states(handle) == "FAILED child:FAILED"
    before = await hand.everything()
    assert WorkflowHandle[Any](old, app.get_broker()).retry_failed().unwrap() is False
    assert await hand.everything() == before
    assert handle.retry_node(node).unwrap() is True
    new = (await hand.node(handle, "child"))["sub_workflow_id"]
    assert new != old and await hand.states(new) == "RUNNING inside:ENQUEUED"
    assert await hand.states(old) == "FAILED inside:FAILED", "history"
    await hand.finish(new, "inside", 11)
    assert handle.get() == TaskResult(ok=11)


@pytest.mark.parametrize("end", ["completed", "cancelled", "expired", "nothing failed", "another", "unknown", "no id"])
async def test_f94_elsewhere_it_is_false_and_changes_nothing(end: str, tasks: Tasks, hand: Hand, clean_db: Db) -> None:
    handle = tasks.chain().start().unwrap()
    node: Any = key("a")
    if end == "completed":
        await hand.finish(handle, "a")
        await hand.finish(handle, "b")
    elif end != "nothing failed":
        await hand.fail(handle, "a")
    if end == "cancelled":
        await clean_db.execute("UPDATE horsies_workflows SET status = 'CANCELLED'")
    if end == "expired":
        await clean_db.execute("UPDATE horsies_workflows SET good_until = now() - interval '1 s'")
    if end == "another":
        node = key("b")
    if end == "unknown":
        node = key("nobody")
    if end == "no id":
        node = tasks.one.node()()
    before = await hand.everything()
    assert handle.retry_node(node).unwrap() is False
    assert (await handle.retry_node_async(node)).unwrap() is False
    if end in ("completed", "cancelled", "expired", "nothing failed"):
        assert handle.retry_failed().unwrap() is False
    assert await hand.everything() == before


async def test_f94_descendants_that_ran_stay_as_they_are(tasks: Tasks, hand: Hand, app: Horsies) -> None:
    a = tasks.one.node(node_id="a")()
    b = tasks.plus.node(node_id="b", allow_failed_deps=True)(a=from_node(a))
    handle = app.workflow("saga", [a, b], definition_key="saga").start().unwrap()
    await hand.fail(handle, "a")
    await hand.finish(handle, "b", 3)
    before = await hand.node(handle, "b")
    assert handle.retry_node(a).unwrap() is True
    assert await hand.states(handle) == "RUNNING a:ENQUEUED b:COMPLETED"
    await hand.finish(handle, "a")
    after = await hand.node(handle, "b")
    assert [after[name] for name in ("status", "task_id", "result")] == [
        before[name] for name in ("status", "task_id", "result")
    ]
    assert handle.status().unwrap() is WorkflowStatus.COMPLETED


async def test_f94_of_many_who_retry_one_did(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.chain().start().unwrap()
    await hand.fail(handle, "a")
    told = await asyncio.gather(*(handle.retry_failed_async() for _ in range(6)))
    assert sorted(result.unwrap() for result in told) == [False] * 5 + [True]
    assert len(await hand.claimable()) == 1 and len((await hand.node(handle, "a"))["previous_task_ids"]) == 1


async def test_f94_what_nobody_has_taken_up_yet_waits_for_the_retried_source(
    tasks: Tasks, hand: Hand, app: Horsies, clean_db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """READY beyond what one step enqueues, with the failure as its input; then the source runs again."""
    source = tasks.one.node(node_id="source")()
    first, second = (tasks.plus.node(node_id=name, allow_failed_deps=True)(a=from_node(source)) for name in "xy")
    handle = app.workflow("late", [source, first, second], definition_key="late").start().unwrap()
    monkeypatch.setattr(step, "MOST", 1)
    await hand.fail(handle, "source", only_one_step=True)
    assert await hand.states(handle) == "RUNNING source:FAILED x:ENQUEUED y:READY"
    assert handle.retry_node(key("source")).unwrap() is True
    assert await hand.states(handle) == "RUNNING source:ENQUEUED x:ENQUEUED y:PENDING"
    await hand.finish(handle, "source", 5)
    assert await hand.states(handle) == "RUNNING source:COMPLETED x:ENQUEUED y:ENQUEUED"
    row = await task_row(clean_db, await hand.task_of(handle, "y"))
    assert json.loads(row["kwargs"])["a"] == {"ok": 5}


async def test_f94_what_is_ready_because_of_another_source_goes_on(
    tasks: Tasks, hand: Hand, app: Horsies, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = tasks.one.node(node_id="bad")(), tasks.one.node(node_id="good")()
    late = [tasks.one.node(node_id=name, waits_for=[bad, good], join="any")() for name in "xy"]
    handle = app.workflow("any", [bad, good, *late], definition_key="any").start().unwrap()
    await hand.fail(handle, "bad")
    monkeypatch.setattr(step, "MOST", 1)
    await hand.finish(handle, "good", only_one_step=True)
    assert await hand.states(handle) == "RUNNING bad:FAILED good:COMPLETED x:ENQUEUED y:READY"
    monkeypatch.setattr(step, "MOST", 1_000)
    assert handle.retry_node(key("bad")).unwrap() is True
    assert await hand.states(handle) == "RUNNING bad:ENQUEUED good:COMPLETED x:ENQUEUED y:ENQUEUED"


async def test_f94_r84_what_retention_has_begun_to_delete_is_not_retried(
    tasks: Tasks, hand: Hand, clean_db: Db
) -> None:
    handle = tasks.diamond().start().unwrap()
    await hand.finish(handle, "a")
    await hand.fail(handle, "b")
    await hand.fail(handle, "c")
    await clean_db.execute("DELETE FROM horsies_workflow_tasks WHERE task_index = 0")
    before = await hand.everything()
    assert handle.retry_failed().unwrap() is False and handle.retry_node(key("c")).unwrap() is False
    assert await hand.everything() == before
