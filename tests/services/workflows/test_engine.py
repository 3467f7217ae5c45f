"""What the end of a node means for its workflow, through the public API on a real database (F-22, F-40–F-44, F-75)."""

from __future__ import annotations

from horsies import OnError, SuccessCase, SuccessPolicy, WorkflowStatus
from tests.services.workflows.hand import Hand, Tasks


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
