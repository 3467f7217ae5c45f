"""What happens at the same instant: no node is enqueued twice, none is stuck, and the server meets no deadlock."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from horsies.core.tasks.moves import Claim, Move
from tests.proof_pairs.test_pairs import deadlocks
from tests.proof_workflows import engine as acts
from tests.proof_workflows.storm import map_over, node, plan, storm

CHANCE = random.Random(5)


@pytest.fixture(autouse=True)
def no_deadlock(database_url: str, server_url: str) -> Iterator[None]:
    yield
    assert deadlocks(server_url, database_url) == 0


async def test_f71_two_nodes_that_finish_at_the_same_instant_enqueue_their_dependent_once(database_url: str) -> None:
    """In forty workflows; each of the two takes them in another order."""
    diamond = plan(node("a"), node("b"), node("both", 0, 1), node("first", 0, 1, join="any"), node("end", 2, 3))
    async with storm(database_url) as s:
        ids = [await s.me.begin(diamond) for _ in range(40)]
        claims = await s.start_all()
        one, other = [await s.end_named(claims, name) for name in "ab"]
        halves = [one[:20], other[20:], one[20:], other[:20]]
        await s.at_once(*(engine.advance(part) for engine, part in zip(s.engines, halves, strict=False)))
        for workflow_id in ids:
            found = await s.nodes(workflow_id)
            assert (found["both"], found["first"], found["end"]) == ("ENQUEUED", "ENQUEUED", "PENDING")
        assert await s.rows("SELECT count(*) FROM horsies_tasks") == [(4 * len(ids),)]
        await s.finish()
        assert {await s.status(workflow_id) for workflow_id in ids} == {"COMPLETED"}
        await s.check()


async def test_f30_f71_a_thousand_nodes_that_finish_at_once_meet_in_one_join(database_url: str) -> None:
    count = 1000
    sources = tuple(range(count))
    joins = (
        node("all", *sources),
        node("any", *sources, join="any"),
        node("half", *sources, join="quorum", min_success=count // 2),
        node("too many", *sources, join="quorum", min_success=count - 5),
        node("whatever", *sources, allow_failed_deps=True),
    )
    async with storm(database_url) as s:
        workflow_id = await s.me.begin(plan(*(node(f"n{n}") for n in sources), *joins))
        claims = await s.start_all()
        ended = await s.end(claims[10:]) + await s.end(claims[:10], acts.fail)
        CHANCE.shuffle(ended)
        parts = [ended[n::16] for n in range(16)]
        await s.at_once(*(s.engines[n % 8].advance(part) for n, part in enumerate(parts)))
        found = await s.nodes(workflow_id)
        names = ("all", "any", "half", "too many", "whatever")
        expected = ["SKIPPED", "ENQUEUED", "ENQUEUED", "SKIPPED", "ENQUEUED"]
        assert [found[name] for name in names] == expected
        await s.finish()
        assert await s.status(workflow_id) == "FAILED"
        await s.check()


async def test_f50_f51_a_pause_in_a_storm_of_completions_lets_nothing_new_begin(database_url: str) -> None:
    width = 40
    first = [node(f"a{n}") for n in range(width)]
    second = [node(f"b{n}", n, (n + 1) % width) for n in range(width)]
    child = plan(node("x"), node("y", 0), key="child")
    sub = node("sub", 0, kind="SUBWORKFLOW", sub_workflow_key="child")
    async with storm(database_url, child) as s:
        workflow_id = await s.me.begin(plan(*first, *second, sub))
        ended = await s.end(await s.start_all())
        parts = [engine.advance(ended[n::7]) for n, engine in enumerate(s.engines[1:])]
        *_, is_paused = await s.at_once(*parts, s.me.pause(workflow_id))
        assert is_paused is True
        before = await s.rows("SELECT count(*) FROM horsies_tasks")
        await s.me.advance(ended)
        await s.me.reconcile()
        assert await s.rows("SELECT count(*) FROM horsies_tasks") == before
        assert await s.me.claim(100) == []
        assert {status for (status,) in await s.rows("SELECT status FROM horsies_workflows")} == {"PAUSED"}
        assert await s.me.resume(workflow_id) is True
        await s.finish()
        assert await s.status(workflow_id) == "COMPLETED"
        await s.check()


async def test_f53_a_cancel_that_races_completion_ends_in_one_or_the_other(database_url: str) -> None:
    child = plan(node("x"), node("y", 0), key="child")
    shape = plan(
        node("a"), node("b"), node("c", 0, 1), node("sub", 0, kind="SUBWORKFLOW", sub_workflow_key="child"),
        map_over("map", 1, max_parallel=2), node("end", 2, 3, 4),
    )  # fmt: skip
    async with storm(database_url, child) as s:
        ids = [await s.me.begin(shape) for _ in range(24)]
        for step in range(4):
            claims = await s.start_all()
            ended = await s.end(claims, lambda claim: acts.complete(claim, [1, 2, 3]))
            chosen = ids[step * 6 : step * 6 + 6]
            await s.at_once(
                *(s.engines[n].advance(ended[n::3]) for n in range(3)),
                *(s.engines[3 + n % 5].cancel(workflow_id) for n, workflow_id in enumerate(chosen)),
            )
            found = {await s.status(workflow_id) for workflow_id in chosen}
            assert found <= {"CANCELLED", "COMPLETED"}
            assert "CANCELLED" in found or step == 3
        await s.finish()
        statuses = await s.rows("SELECT DISTINCT status FROM horsies_workflow_tasks")
        assert {status for (status,) in statuses} <= {"COMPLETED", "FAILED", "SKIPPED"}
        assert await s.rows("SELECT 1 FROM horsies_tasks WHERE status IN ('PENDING', 'CLAIMED', 'RUNNING')") == []
        await s.check()


async def test_f52_f72_resuming_twice_at_once_resumes_once(database_url: str) -> None:
    child = plan(node("x"), node("y", 0), key="child")
    sub = node("sub", 0, kind="SUBWORKFLOW", sub_workflow_key="child")
    async with storm(database_url, child) as s:
        ids = [await s.me.begin(plan(node("a"), node("b", 0), sub, node("c", 0))) for _ in range(20)]
        ended = await s.end(await s.start_all())
        for workflow_id in ids:
            assert await s.me.pause(workflow_id) is True
        await s.me.advance(ended)
        assert await s.rows("SELECT count(*) FROM horsies_tasks") == [(20,)]
        for workflow_id in ids:
            answers = await s.at_once(*(engine.resume(workflow_id) for engine in s.engines[:3]))
            assert sorted(map(bool, answers)) == [False, False, True]
        assert await s.rows("SELECT count(*) FROM horsies_tasks") == [(20 * 4,)]
        assert await s.rows("SELECT count(*) FROM horsies_workflows") == [(40,)]
        await s.finish()
        assert {status for (status,) in await s.rows("SELECT status FROM horsies_workflows")} == {"COMPLETED"}
        await s.check()


async def test_f94_a_node_retried_while_its_sibling_ends_leads_to_one_run_of_their_join(database_url: str) -> None:
    shape = plan(node("a"), node("b"), node("all", 0, 1), node("two", 0, 1, join="quorum", min_success=2))
    async with storm(database_url) as s:
        ids = [await s.me.begin(shape) for _ in range(30)]
        claims = await s.start_all()
        await s.me.advance(await s.end_named(claims, "a", fails=True))
        ended = await s.end_named(claims, "b")
        CHANCE.shuffle(ended)
        answers = await s.at_once(
            *(s.engines[n].advance(ended[n::2]) for n in range(2)),
            *(s.engines[2 + n % 6].retry(workflow_id, ["a"]) for n, workflow_id in enumerate(ids)),
        )
        assert answers[2:] == [True] * len(ids)
        await s.finish()
        for workflow_id in ids:
            assert set((await s.nodes(workflow_id)).values()) == {"COMPLETED"}
        assert await s.rows("SELECT count(*) FROM horsies_tasks") == [(5 * len(ids),)]
        await s.check()


async def test_f94_a_child_is_not_retried_and_taken_by_its_parent_at_the_same_time(database_url: str) -> None:
    child = plan(node("x"), key="child")
    shape = plan(node("sub", kind="SUBWORKFLOW", sub_workflow_key="child"), children={0: child})
    async with storm(database_url, child) as s:
        for _ in range(12):
            workflow_id = await s.me.begin(shape)
            found = await s.rows("SELECT id FROM horsies_workflows WHERE parent_workflow_id = %s", workflow_id)
            (child_id,) = found[0]
            ended = await s.end(await s.start_all(), acts.fail)
            _, answer = await s.at_once(s.engines[1].advance(ended), _retry_when_failed(s, child_id))
            taken = (await s.nodes(workflow_id))["sub"]
            assert (answer, taken, await s.status(child_id)) in [
                (True, "RUNNING", "RUNNING"),
                (False, "FAILED", "FAILED"),
            ]
            await s.finish()
        await s.check()


async def _retry_when_failed(s: Any, child_id: str) -> bool:
    """As soon as it has failed, which may be before its parent knows."""
    while await s.status(child_id) == "RUNNING":
        pass
    answer: bool = await s.engines[2].retry(child_id, None)
    return answer


async def test_f95_the_elements_of_a_map_that_end_at_once_close_it_once(database_url: str) -> None:
    shape = plan(node("list"), map_over("map", 0), map_over("few", 0, max_parallel=5), node("end", 1, 2))
    async with storm(database_url) as s:
        workflow_id = await s.me.begin(shape)
        await s.me.advance(await s.end(await s.start_all(), lambda claim: acts.complete(claim, list(range(60)))))
        assert await s.rows("SELECT count(*) FROM horsies_tasks") == [(1 + 60 + 5,)]
        for _ in range(100):
            ended = await s.end(await s.start_all())
            if not ended:
                break
            await s.at_once(*(engine.advance(ended[n :: len(s.engines)]) for n, engine in enumerate(s.engines)))
            busy = "SELECT 1 FROM horsies_workflow_tasks WHERE map_index = 2 AND status IN ('ENQUEUED', 'RUNNING')"
            assert len(await s.rows(busy)) <= 5
        assert await s.status(workflow_id) == "COMPLETED"
        assert await s.rows("SELECT count(*) FROM horsies_tasks") == [(1 + 60 + 60 + 1,)]
        await s.check()


async def test_f51_f53_f94_pause_resume_cancel_and_retry_of_a_tree_at_once_meet_no_deadlock(database_url: str) -> None:
    """Whoever wins; in the end everything has ended."""
    leaf = plan(node("x"), node("y", 0), key="leaf")
    child = plan(
        node("p"), node("sub", kind="SUBWORKFLOW", sub_workflow_key="leaf"), key="child", children={1: leaf},
        on_error="PAUSE",
    )  # fmt: skip
    shape = plan(
        node("a"), node("one", kind="SUBWORKFLOW", sub_workflow_key="child"),
        node("two", 0, kind="SUBWORKFLOW", sub_workflow_key="child"), node("end", 1, 2, allow_failed_deps=True),
        children={1: child},
    )  # fmt: skip
    async with storm(database_url, leaf, child) as s:
        roots = [await s.me.begin(shape) for _ in range(6)]
        for _ in range(12):
            ended = await s.end(await s.start_all(), lambda claim: CHANCE.choice((acts.fail, _well))(claim))
            everyone = [workflow_id for (workflow_id,) in await s.rows("SELECT id FROM horsies_workflows")]
            work = [engine.advance(ended[n::2]) for n, engine in enumerate(s.engines[:2])]
            for engine in s.engines[2:]:
                chosen = CHANCE.choice(everyone)
                how = CHANCE.choice((engine.pause, engine.resume, engine.resume, _retry_failed(engine)))
                work.append(how(chosen))  # type: ignore[arg-type]
            await s.at_once(*work)
        await s.at_once(*(engine.cancel(root) for engine in s.engines for root in roots))
        await s.finish()
        assert await s.rows("SELECT 1 FROM horsies_workflow_tasks WHERE completed_at IS NULL") == []
        assert await s.rows("SELECT 1 FROM horsies_workflows WHERE completed_at IS NULL") == []
        await s.check()


def _well(claim: Claim) -> Move:
    return acts.complete(claim, 1)


def _retry_failed(engine: acts.Engine) -> Callable[[str], Awaitable[bool | None]]:
    return lambda workflow_id: engine.retry(workflow_id, None)
