"""What the proof has found once, each as small as it can be told."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from tests.proof_workflows import engine as acts
from tests.proof_workflows.engine import Broke
from tests.proof_workflows.storm import Storm, map_over, node, plan, storm

KID = plan(node("x"), key="kid")
PAUSING = plan(
    node("a"), node("sub", kind="SUBWORKFLOW", sub_workflow_key="kid"), children={1: KID}, on_error="PAUSE"
)  # fmt: skip


async def test_f41_f51_children_are_paused_with_a_parent_that_fails_wherever_the_connection_breaks(
    database_url: str,
) -> None:
    async with storm(database_url, KID, engines=1) as s:
        for statements in range(14):
            await s.me.begin(PAUSING)
            ended = await s.end_named(await s.start_all(), "a", fails=True)
            s.me.pool.breaks_after = statements
            try:
                await s.me.advance(ended)
            except Broke:
                await s.me.reconcile()
            s.me.pool.breaks_after = None
            assert await s.rows("SELECT DISTINCT status FROM horsies_workflows") == [("PAUSED",)], statements
        await s.check()


async def test_f94_a_retry_that_fails_at_once_leaves_an_end_with_its_time_and_its_error(database_url: str) -> None:
    async with storm(database_url, engines=1) as s:
        workflow_id = await s.me.begin(plan(node("no list"), map_over("map", 0)))
        await s.me.advance(await s.end(await s.start_all()))
        assert await s.status(workflow_id) == "FAILED"
        assert await s.me.retry(workflow_id, ["map"]) is True
        columns = "status, error_code, completed_at IS NOT NULL, result IS NOT NULL"
        found = await s.rows(f"SELECT {columns} FROM horsies_workflows")  # noqa: S608
        assert found == [("FAILED", "WORKFLOW_ENQUEUE_FAILED", True, True)]


async def test_f94_f95_a_dependency_retried_while_its_map_runs_is_not_counted_as_an_element(database_url: str) -> None:
    shape = plan(node("bad"), node("list"), map_over("map", 1, also=(0,), allow_failed_deps=True))
    async with storm(database_url, engines=1) as s:
        workflow_id = await s.me.begin(shape)
        claims = await s.start_all()
        ended = await s.end_named(claims, "bad", fails=True)
        ended += await s.end_named(claims, "list", value=[1, 2, 3])
        await s.me.advance(ended)
        elements = await s.start_all()
        assert len(elements) == 3
        assert await s.me.retry(workflow_id, ["bad"]) is True
        await s.me.advance(await s.end(elements))
        assert (await s.nodes(workflow_id))["map"] == "COMPLETED"
        await s.finish()
        assert await s.status(workflow_id) == "COMPLETED"
        await s.check()


@pytest.mark.parametrize("join", ["all", "any"])
async def test_f94_f35_a_node_retried_together_with_its_source_does_not_get_the_old_error(
    database_url: str, join: str
) -> None:
    options: dict[str, Any] = {"args_from": {"p": 0}, "join": join, "allow_failed_deps": join == "all"}
    async with storm(database_url, engines=1) as s:
        workflow_id = await s.me.begin(plan(node("source"), node("other"), node("taker", 0, 1, **options)))
        claims = await s.start_all()
        await s.me.advance([*await s.end_named(claims, "source", fails=True), *await s.end_named(claims, "other")])
        await s.me.advance(await s.end(await s.start_all(), acts.fail))
        assert await s.me.retry(workflow_id, None) is True
        found = await s.nodes(workflow_id)
        assert (found["source"], found["taker"]) == ("ENQUEUED", "PENDING" if join == "all" else "ENQUEUED")
        await s.me.advance(await s.end(await s.start_all()))
        kwargs = await s.rows("SELECT t.kwargs FROM horsies_tasks t JOIN horsies_workflow_tasks n ON n.task_id = t.id "
                              "WHERE n.node_id = 'taker'")  # fmt: skip
        assert json.loads(kwargs[0][0] or "{}") == ({"p": {"ok": 1}} if join == "all" else {})
        await s.check()


async def test_f94_a_child_whose_node_has_another_one_now_is_not_retried(database_url: str) -> None:
    async with storm(database_url, KID, engines=1) as s:
        workflow_id = await s.me.begin(plan(node("sub", kind="SUBWORKFLOW", sub_workflow_key="kid"), children={0: KID}))
        await s.me.advance(await s.end(await s.start_all(), acts.fail))
        [(old,)] = await _children(s)
        assert await s.me.retry(old, None) is False, "its parent has taken its end"
        assert await s.me.retry(workflow_id, None) is True
        assert len(await _children(s)) == 2
        assert await s.me.retry(old, None) is False
        await s.finish()
        assert (await s.status(workflow_id), await s.status(old)) == ("COMPLETED", "FAILED")
        await s.check()


async def _children(s: Storm) -> list[tuple[Any, ...]]:
    return await s.rows("SELECT id FROM horsies_workflows WHERE parent_workflow_id IS NOT NULL")


async def test_f52_f94_a_retried_node_is_enqueued_before_an_end_below_pauses_the_workflow_again(
    database_url: str,
) -> None:
    """Whatever the ids of the workflows are: they were advanced in that order, which is random."""
    async with storm(database_url, KID, engines=1) as s:
        for _ in range(8):
            workflow_id = await s.me.begin(PAUSING)
            claims = await s.start_all()
            await s.me.advance(await s.end_named(claims, "a", fails=True))
            assert await s.status(workflow_id) == "PAUSED"
            await s.me.advance(await s.end_named(claims, "x", fails=True))
            assert await s.me.retry(workflow_id, ["a"]) is True
            assert (await s.nodes(workflow_id))["a"] == "ENQUEUED"
            assert await s.status(workflow_id) == "PAUSED", "the child has failed"


async def test_f50_f94_a_pause_that_comes_before_the_child_of_a_retried_node_holds_it_back(database_url: str) -> None:
    """Wherever the connection breaks: what is left to do after the retry is done after the end that nobody has told."""
    seen = set()
    async with storm(database_url, KID, engines=1) as s:
        for statements in range(40):
            workflow_id = await s.me.begin(PAUSING)
            claims = await s.start_all()
            await s.me.advance(await s.end_named(claims, "x", fails=True))
            await s.end_named(claims, "a", fails=True)
            s.me.pool.breaks_after = statements
            with suppress(Broke):
                await s.me.retry(workflow_id, ["sub"])
            is_whole, s.me.pool.breaks_after = s.me.pool.breaks_after is not None, None
            await s.me.reconcile()
            assert await s.status(workflow_id) == "PAUSED", statements
            states = await s.rows(_OF_CHILDREN, workflow_id)
            found = ((await s.nodes(workflow_id))["sub"], *(state for (state,) in states))
            assert found in (("FAILED", "FAILED"), ("READY", "FAILED"), ("RUNNING", "FAILED", "PAUSED")), statements
            seen.add(found[0])
            assert await s.me.resume(workflow_id) is True
            assert (await s.nodes(workflow_id))["sub"] == ("FAILED" if found[0] == "FAILED" else "RUNNING"), statements
            await s.finish()
            if is_whole:
                break
        await s.check()
    assert is_whole and seen == {"FAILED", "READY", "RUNNING"}


_OF_CHILDREN = "SELECT status FROM horsies_workflows WHERE parent_workflow_id = %s ORDER BY created_at"
