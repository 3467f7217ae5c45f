"""What the end of a node means for its workflow, through the public API on a real database (F-22, F-40–F-44, F-75)."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import NodeKey, OnError, SuccessCase, SuccessPolicy, WorkflowStatus
from horsies.core.db.pool import Pool
from horsies.core.models.workflow.plan import WorkflowPlan
from horsies.core.models.workflow.registry import BuildRequest, NotBuiltHere
from horsies.core.workflows import control, step
from horsies.core.workflows.advance import Advanced, Worklist, advance
from horsies.core.workflows.layout import TreePosition, lay_out, write_layout
from tests.services.workflows.flows import child_node, end_task_of, node, plan, started
from tests.services.workflows.hand import Hand, Tasks

Db = AsyncConnection[Any]


async def test_f40_f32_other_branches_run_on_and_the_workflow_fails_in_the_end(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.diamond().start().unwrap()
    await hand.finish(handle, "a")
    await hand.fail(handle, "b")
    assert await hand.states(handle) == "RUNNING a:COMPLETED b:FAILED c:ENQUEUED d:SKIPPED"
    assert (await hand.workflow(handle))["error_code"] == "BAD", "the first error is kept at once"
    await hand.finish(handle, "c")
    assert await hand.states(handle) == "FAILED a:COMPLETED b:FAILED c:COMPLETED d:SKIPPED"
    result = await handle.get_async(timeout_ms=5_000)
    assert result.unwrap_err().code == "BAD"


async def test_f41_with_pause_nothing_is_skipped_before_it_goes_on(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.chain(on_error=OnError.PAUSE).start().unwrap()
    await hand.fail(handle, "a")
    assert await hand.states(handle) == "PAUSED a:FAILED b:PENDING"
    assert handle.resume().unwrap() is True
    assert await hand.states(handle) == "FAILED a:FAILED b:SKIPPED"


async def test_f42_f43_a_policy_decides_and_names_the_required_node_that_failed(tasks: Tasks, hand: Hand) -> None:
    policy = SuccessPolicy(cases=[SuccessCase(required=["d"]), SuccessCase(required=["c"])], optional=["b"])
    handle = tasks.diamond(success_policy=policy).start().unwrap()
    await hand.finish(handle, "a")
    await hand.fail(handle, "b", "OPTIONAL")
    await hand.finish(handle, "c")
    assert handle.status().unwrap() is WorkflowStatus.COMPLETED, "d was skipped, but the second case holds"

    again = tasks.diamond(success_policy=policy).start().unwrap()
    await hand.finish(again, "a")
    await hand.fail(again, "b", "OPTIONAL")
    await hand.fail(again, "c", "REQUIRED")
    assert again.status().unwrap() is WorkflowStatus.FAILED
    assert again.get(timeout_ms=5_000).unwrap_err().code == "REQUIRED", (
        "not that of the optional node, which failed first"
    )


async def test_f44_f22_only_the_final_outcome_of_a_task_reaches_the_workflow(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.chain().start().unwrap()
    await hand.begin(handle, "a")
    task_id = await hand.wait_for_retry(handle, "a")
    assert (await hand.advance(task_id)).nodes == 0, "it waits for its next attempt"
    assert await hand.states(handle) == "RUNNING a:RUNNING b:PENDING"
    await hand.finish(handle, "a", 5)
    assert await hand.states(handle) == "RUNNING a:COMPLETED b:ENQUEUED"


async def test_f75_f70_the_end_of_the_last_node_ends_the_workflow_once(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.chain().start().unwrap()
    await hand.finish(handle, "a")
    task_id = await hand.task_of(handle, "b")
    await hand.finish(handle, "b", 9)
    ended = await hand.workflow(handle)
    assert (ended["status"], ended["open_nodes"]) == ("COMPLETED", 0) and ended["completed_at"] is not None
    assert handle.get(timeout_ms=5_000).unwrap() == 9
    assert await hand.advance(task_id) == await hand.advance(), "a second time has no effect"
    assert await hand.workflow(handle) == ended


async def test_f50_f95_what_is_ready_in_a_paused_workflow_is_looked_for_once(
    clean_db: Db, clean_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause between two steps of a wide fan-out: those beyond the first step stay READY, and nobody spins."""
    monkeypatch.setattr(step, "MOST", 2)
    flow = await started(clean_db, node("a"), *(node(f"n{n}", 0) for n in range(5)))
    task = await end_task_of(clean_db, flow, 0)
    await Worklist(tasks=[task]).step(clean_pool, None)
    assert await control.pause(clean_pool, flow) is True
    async with asyncio.timeout(20):
        assert await Worklist(flows={flow: None}).work_off(clean_pool, None) == Advanced(0, 0)
    assert await control.resume(clean_pool, flow, None) is True
    assert {status for (status,) in await states(clean_db, flow)} == {"COMPLETED", "ENQUEUED"}


async def test_r35_f64_children_that_cannot_be_built_here_are_looked_for_once(
    clean_db: Db, clean_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "MOST", 2)
    flow = await started(clean_db, node("a"), *(child_node(f"c{n}", 0) for n in range(4)), node("z", 0))
    await end_task_of(clean_db, flow, 0)

    class Elsewhere:
        async def build(self, request: BuildRequest) -> WorkflowPlan:
            raise NotBuiltHere(request.definition_key)

    task = await (await clean_db.execute("SELECT task_id FROM horsies_workflow_tasks WHERE node_id = 'a'")).fetchone()
    assert task is not None
    async with asyncio.timeout(20):
        await advance(clean_pool, [task[0]], Elsewhere())
        await Worklist(flows={flow: None}).work_off(clean_pool, Elsewhere())
    found = [status for (status,) in await states(clean_db, flow)]
    assert found == ["COMPLETED", *["READY"] * 4, "ENQUEUED"], "and they do not hide the others"


async def test_f82_a_start_that_is_repeated_writes_nothing_of_its_children(clean_db: Db) -> None:
    place = TreePosition(workflow_id := str(uuid.uuid4()), workflow_id)
    whole = plan(child_node("c"), children={0: plan(node("x"))})
    assert await write_layout(clean_db, lay_out(whole, place)) is True
    assert await write_layout(clean_db, lay_out(whole, place)) is False
    counted = await (await clean_db.execute("SELECT count(*) FROM horsies_workflows")).fetchone()
    assert counted == (2,)


async def test_f94_f95_a_map_of_too_few_elements_is_not_run_again(tasks: Tasks, hand: Hand) -> None:
    handle = tasks.mapping(min_success=3).start().unwrap()
    await hand.finish(handle, "source", [1, 2])
    await hand.finish(handle, "m[0]")
    await hand.finish(handle, "m[1]")
    assert (await hand.states(handle)).startswith("FAILED source:COMPLETED m:FAILED")
    before = await hand.everything()
    assert handle.retry_failed().unwrap() is False and handle.retry_node(NodeKey("m")).unwrap() is False
    assert await hand.everything() == before


async def test_r34_a_node_that_has_a_task_again_is_not_given_up(clean_db: Db, clean_pool: Pool) -> None:
    """Whoever found its task gone comes late: it was retried meanwhile."""
    flow = await started(clean_db, node("a"))
    assert await Worklist(lost=[(flow, 0)]).work_off(clean_pool, None) == Advanced(0, 0)
    assert await states(clean_db, flow) == [("ENQUEUED",)]


async def test_r34_nor_is_one_that_has_a_child_workflow_again(clean_db: Db, clean_pool: Pool) -> None:
    flow = await started(clean_db, child_node("c"), children={0: plan(node("x"))})
    assert await Worklist(lost=[(flow, 0)]).work_off(clean_pool, None) == Advanced(0, 0)
    assert await states(clean_db, flow) == [("RUNNING",)]
    await clean_db.execute("DELETE FROM horsies_workflows WHERE parent_workflow_id = %s", [flow])
    await Worklist(lost=[(flow, 0)]).work_off(clean_pool, None)
    assert await states(clean_db, flow) == [("FAILED",)]


async def test_f96_no_child_is_written_after_the_deadline_that_passed_while_it_was_built(
    clean_db: Db, clean_pool: Pool
) -> None:
    flow = await started(clean_db, node("a"), child_node("c", 0))

    class Slow:
        async def build(self, request: BuildRequest) -> WorkflowPlan:
            await clean_db.execute("UPDATE horsies_workflows SET good_until = now() - interval '1 s'")
            return plan(node("x"))

    await advance(clean_pool, [await end_task_of(clean_db, flow, 0)], Slow())
    assert await states(clean_db, flow) == [("COMPLETED",), ("SKIPPED",)]
    found = await (await clean_db.execute("SELECT status, error_code FROM horsies_workflows")).fetchall()
    assert found == [("FAILED", "WORKFLOW_EXPIRED")], "and there is no child"


async def test_f94_a_child_is_not_retried_under_a_parent_that_was_cancelled(clean_db: Db, clean_pool: Pool) -> None:
    """The parent has not taken the end of the child yet."""
    place = TreePosition(parent := str(uuid.uuid4()), parent)
    await write_layout(clean_db, lay_out(plan(child_node("c"), children={0: plan(node("x"))}), place))
    row = await (await clean_db.execute("SELECT id FROM horsies_workflows WHERE depth = 1")).fetchone()
    assert row is not None
    await clean_db.execute("UPDATE horsies_workflow_tasks SET status = 'FAILED' WHERE workflow_id = %s", row)
    await clean_db.execute("UPDATE horsies_workflows SET status = CASE depth WHEN 0 THEN 'CANCELLED' ELSE 'FAILED' END")
    assert await control.retry_nodes(clean_pool, row[0], None, None) is False
    await clean_db.execute("UPDATE horsies_workflows SET status = 'RUNNING' WHERE depth = 0")
    assert await control.retry_nodes(clean_pool, row[0], None, None) is True, "nothing else is in its way"


async def states(db: Db, workflow_id: str) -> list[tuple[str]]:
    query = "SELECT status FROM horsies_workflow_tasks WHERE workflow_id = %s ORDER BY task_index"
    return list(await (await db.execute(query, [workflow_id])).fetchall())
