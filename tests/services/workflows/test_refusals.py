"""What the database does not take: only the node that is refused fails, and nothing is tried for ever (F-72). And what
is too much for one step is done by several."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.db.pool import Pool
from horsies.core.models.recovery import WorkerResilienceConfig
from horsies.core.models.workflow.plan import MapOptions, WorkflowPlan
from horsies.core.models.workflow.registry import BuildFailed, BuildRequest
from horsies.core.store import workflows as store
from horsies.core.types.status import TaskStatus
from horsies.core.worker.advance import Advancer
from horsies.core.workflows import control, step
from horsies.core.workflows.advance import Worklist, advance
from tests.services.workflows.flows import child_node, child_of, end_task_of, node, node_row, plan, started, states
from tests.support import eventually

Db = AsyncConnection[Any]


@pytest.fixture
async def refusing(clean_db: Db) -> Any:
    """No task of the name `bad` can be written."""
    await clean_db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.task_name = 'bad' OR NEW.kwargs LIKE '%bad%' THEN RAISE 'not this one' USING ERRCODE = '22000';"
        " END IF; RETURN NEW; END $$"
    )
    await clean_db.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON horsies_tasks FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    yield
    await clean_db.execute("DROP FUNCTION refuse CASCADE")


def bad(node_id: str, *after: int, **more: Any) -> Any:
    return node(node_id, *after, task_name="bad", **more)


class Builds:
    """Builds this, or fails to."""

    def __init__(self, built: WorkflowPlan | None) -> None:
        self.built = built

    async def build(self, request: BuildRequest) -> WorkflowPlan:
        if self.built is None:
            raise BuildFailed("it cannot be built")
        return self.built


async def code_of(db: Db, flow: str, index: int) -> str | None:
    code: str | None = (await node_row(db, flow, index))["error_code"]
    return code


async def test_f72_of_many_that_are_ready_only_the_refused_one_fails(
    clean_db: Db, clean_pool: Pool, refusing: None
) -> None:
    innocent = [node(f"n{n}", 0) for n in range(20)]
    flow = await started(clean_db, node("a"), *innocent[:13], bad("bad", 0), *innocent[13:], node("after", 14))
    await advance(clean_pool, [await end_task_of(clean_db, flow, 0)], None)
    assert await states(clean_db, flow) == ("RUNNING", "C" + "E" * 13 + "F" + "E" * 7 + "S")
    row = await node_row(clean_db, flow, 14)
    assert row["error_code"] == "WORKFLOW_ENQUEUE_FAILED" and "not this one" in row["result"]


async def test_f72_f50_so_it_is_when_they_have_waited_for_a_pause_to_end(
    clean_db: Db, clean_pool: Pool, refusing: None
) -> None:
    flow = await started(clean_db, node("a"), node("x", 0), bad("bad", 0), node("y", 0), bad("bad too", 0))
    await end_task_of(clean_db, flow, 0)
    await clean_db.execute(
        "UPDATE horsies_workflow_tasks SET status = CASE task_index WHEN 0 THEN 'COMPLETED' ELSE 'READY' END"
    )
    await clean_db.execute("UPDATE horsies_workflows SET open_nodes = 4")
    await Worklist(flows={flow: None}).work_off(clean_pool, None)
    assert await states(clean_db, flow) == ("RUNNING", "CEFEF")


async def test_f72_f50_f94_a_refused_node_keeps_nobody_from_resuming_or_retrying(
    clean_db: Db, clean_pool: Pool, refusing: None
) -> None:
    flow = await started(clean_db, node("a"), bad("bad", 0), node("good", 0))
    await control.pause(clean_pool, flow)
    await advance(clean_pool, [await end_task_of(clean_db, flow, 0)], None)
    assert await states(clean_db, flow) == ("PAUSED", "CPP")
    assert await control.resume(clean_pool, flow, None) is True
    assert await states(clean_db, flow) == ("RUNNING", "CFE")
    assert await control.retry_nodes(clean_pool, flow, None, None) is True
    assert await states(clean_db, flow) == ("RUNNING", "CFE"), "refused once more"


async def test_f72_two_at_once_fail_nobody_but_the_refused(clean_db: Db, clean_pool: Pool, refusing: None) -> None:
    flow = await started(clean_db, node("a"), *((bad if n % 4 == 0 else node)(f"n{n}", 0) for n in range(16)))
    task = await end_task_of(clean_db, flow, 0)
    async with asyncio.timeout(60):
        await asyncio.gather(*(advance(clean_pool, [task], None) for _ in range(3)))
        await asyncio.gather(*(Worklist(flows={flow: None}).work_off(clean_pool, None) for _ in range(3)))
    assert await states(clean_db, flow) == ("RUNNING", "C" + "FEEE" * 4)


async def test_f72_who_comes_late_with_a_refusal_fails_nobody_else(
    clean_db: Db, clean_pool: Pool, refusing: None
) -> None:
    """Another worker takes in the end of a second source between the try and what follows from it."""
    flow = await started(clean_db, node("a"), node("b"), node("x", 0, 1), bad("bad", 0))
    late = Worklist(tasks=[await end_task_of(clean_db, flow, 0)])
    while not (late.batches and late.batches[0].refused):
        late.add(await late.step(clean_pool, None))
    await advance(clean_pool, [await end_task_of(clean_db, flow, 1)], None)
    await late.work_off(clean_pool, None)
    assert await states(clean_db, flow) == ("RUNNING", "CCEF")


async def test_f72_f95_a_map_of_nothing_and_a_wrong_input_have_ends_of_their_own(
    clean_db: Db, clean_pool: Pool, refusing: None
) -> None:
    empty = node("m", 0, node_type="MAP", map_options=MapOptions(0, "x"))
    wrong = node("wrong", 0, kwargs_json="[1]", args_from={"q": 0})
    flow = await started(clean_db, node("a"), empty, wrong, bad("bad", 0))
    await advance(clean_pool, [await end_task_of(clean_db, flow, 0, result='{"ok":[]}')], None)
    assert await states(clean_db, flow) == ("FAILED", "CCFF")
    assert "not a JSON object" in (await node_row(clean_db, flow, 2))["result"]


@pytest.mark.parametrize("list_of", [["good", "bad"], ["bad", "good"]])
async def test_f72_f95_of_a_map_only_the_refused_element_fails(
    clean_db: Db, clean_pool: Pool, refusing: None, list_of: list[str]
) -> None:
    mapped = node("m", 0, node_type="MAP", map_options=MapOptions(0, "x"), min_success=1)
    flow = await started(clean_db, node("a"), mapped)
    await advance(clean_pool, [await end_task_of(clean_db, flow, 0, result=json.dumps({"ok": list_of}))], None)
    expected = "".join("F" if one == "bad" else "E" for one in list_of)
    assert await states(clean_db, flow) == ("RUNNING", "CU" + expected)


async def test_f72_the_first_failure_is_that_of_the_refused_node(
    clean_db: Db, clean_pool: Pool, refusing: None
) -> None:
    flow = await started(clean_db, node("a"), node("b"), bad("bad", 0))
    first = await end_task_of(clean_db, flow, 0, seconds_ago=100)
    error = '{"err":{"error_code":"LATER","message":""}}'
    await advance(clean_pool, [first, await end_task_of(clean_db, flow, 1, TaskStatus.FAILED, error)], None)
    kept = await (await clean_db.execute("SELECT error_code FROM horsies_workflows")).fetchone()
    assert kept == ("WORKFLOW_ENQUEUE_FAILED",)


async def test_f72_many_refusals_take_a_few_transactions_each(clean_db: Db, clean_pool: Pool, refusing: None) -> None:
    flow = await started(clean_db, node("a"), *(bad(f"b{n}", 0) for n in range(30)))
    worklist = Worklist(tasks=[await end_task_of(clean_db, flow, 0)])
    steps = 0
    while worklist:
        worklist.add(await worklist.step(clean_pool, None))
        steps += 1
    assert await states(clean_db, flow) == ("FAILED", "C" + "F" * 30)
    assert steps < 30 * 3, "not from the beginning for each"


async def test_f94_f64_a_child_built_with_old_inputs_is_built_anew(clean_db: Db, clean_pool: Pool) -> None:
    """While it is built, its source is retried and succeeds."""
    seen: list[str] = []

    class Slow:
        async def build(self, request: BuildRequest) -> WorkflowPlan:
            seen.append(request.injected["x"])
            if len(seen) == 1:
                assert await control.retry_nodes(clean_pool, flow, ["a"], None)
                again = await end_task_of(clean_db, flow, 0, result='{"ok":5}')
                await Worklist(tasks=[again]).step(clean_pool, None)
            return plan(node("inside"))

    flow = await started(clean_db, node("a"), child_node("c", 0, args_from={"x": 0}, allow_failed_deps=True))
    failed = '{"err":{"error_code":"X","message":""}}'
    await advance(clean_pool, [await end_task_of(clean_db, flow, 0, TaskStatus.FAILED, failed)], Slow())
    assert json.loads(seen[1]) == {"ok": 5} and len(seen) == 2
    assert await states(clean_db, flow) == ("RUNNING", "CU")


async def test_f72_f62_a_refusal_after_the_end_of_a_child_is_not_tried_for_ever(
    clean_db: Db, clean_pool: Pool, refusing: None
) -> None:
    flow = await started(clean_db, child_node("c"), bad("bad", 0), node("good", 0), children={0: plan(node("inside"))})
    child = await child_of(clean_db, flow, 0)
    async with asyncio.timeout(20):
        await advance(clean_pool, [await end_task_of(clean_db, child, 0)], None)
    assert await states(clean_db, flow) == ("RUNNING", "CFE")


async def test_f72_f64_a_child_that_cannot_be_written_fails_its_node(
    clean_db: Db, clean_pool: Pool, refusing: None
) -> None:
    flow = await started(clean_db, node("a"), child_node("c", 0), node("late", 1, allow_failed_deps=True))
    await advance(clean_pool, [await end_task_of(clean_db, flow, 0)], Builds(plan(bad("inside"))))
    assert await states(clean_db, flow) == ("RUNNING", "CFE")
    assert await code_of(clean_db, flow, 1) == "WORKFLOW_ENQUEUE_FAILED"
    assert await (await clean_db.execute("SELECT count(*) FROM horsies_workflows")).fetchone() == (1,), "nothing of it"


async def test_f72_f64_what_follows_a_child_that_cannot_be_built_may_be_refused_too(
    clean_db: Db, clean_pool: Pool, refusing: None
) -> None:
    options = {"allow_failed_deps": True}
    flow = await started(clean_db, node("a"), child_node("c", 0), bad("bad", 1, **options), node("good", 1, **options))
    async with asyncio.timeout(20):
        await advance(clean_pool, [await end_task_of(clean_db, flow, 0)], Builds(None))
    assert await states(clean_db, flow) == ("RUNNING", "CFFE")
    assert await code_of(clean_db, flow, 1) == "SUBWORKFLOW_LOAD_FAILED"


async def test_f72_l32_a_worker_s_advancer_comes_to_an_end_with_it(
    clean_db: Db, clean_pool: Pool, refusing: None
) -> None:
    config = WorkerResilienceConfig(db_retry_initial_ms=100, db_retry_max_ms=500)
    advancer = Advancer(clean_pool, Builds(plan(bad("inside"))), config, lambda: None)
    flow = await started(clean_db, node("a"), bad("bad", 0), child_node("c", 0), node("good", 0))
    advancer.put(await end_task_of(clean_db, flow, 0), flow)

    async def serve(turn: Any) -> None:
        while True:
            await turn()

    serving = [asyncio.create_task(serve(advancer.step)), asyncio.create_task(serve(advancer.build))]
    await eventually(lambda: advancer.is_idle, what="the advancer has nothing to do")
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)
    assert await states(clean_db, flow) == ("RUNNING", "CFFE")


async def test_f71_what_a_divided_step_has_left_to_do_is_known_before_its_other_half(
    clean_db: Db, clean_pool: Pool
) -> None:
    """One of two has to be paused, and for that to be alone: what follows from the first does not wait for the second,
    nor is it lost with it."""
    first = await started(clean_db, node("a"), child_node("c", 0))
    second = await started(clean_db, node("a"), on_error="PAUSE")
    tasks = [
        await end_task_of(clean_db, first, 0, seconds_ago=20),
        await end_task_of(clean_db, second, 0, TaskStatus.FAILED, '{"err":{"error_code":"X","message":""}}'),
    ]
    worklist = Worklist(tasks=tasks)
    left: list[tuple[str, int]] = []
    while worklist and not left:
        left += (await worklist.step(clean_pool, None)).builds
    assert left == [(first, 1)] and worklist, "the other half is still to come"
    await worklist.work_off(clean_pool, None)
    assert (await states(clean_db, second))[0] == "PAUSED"


# Bytes


async def test_f71_large_results_are_taken_in_by_several_steps(
    clean_db: Db, clean_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ENOUGH_BYTES", 1_000)
    flow = await started(clean_db, *(node(f"n{n}") for n in range(5)))
    large = json.dumps({"ok": "x" * 700})
    tasks = [await end_task_of(clean_db, flow, n, result=large, seconds_ago=60 - n) for n in range(5)]
    worklist = Worklist(tasks=tasks)
    seen = []
    while worklist:
        after = await worklist.step(clean_pool, None)
        worklist.add(after)
        seen.append((await states(clean_db, flow))[1].count("C"))
    assert seen == [2, 4, 5], "and the oldest first"
    assert {(await node_row(clean_db, flow, n))["result"] for n in range(5)} == {large}


async def test_f71_f62_so_are_those_of_children(
    clean_db: Db, clean_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = await started(
        clean_db,
        *(child_node(f"c{n}") for n in range(3)),
        children={n: plan(node("inside"), output_index=0) for n in range(3)},
    )
    children = [await child_of(clean_db, flow, n) for n in range(3)]
    large = json.dumps({"ok": "x" * 700})
    await clean_db.execute(
        "UPDATE horsies_workflows SET status = 'COMPLETED', completed_at = now(), open_nodes = 0, result = %s"
        " WHERE parent_workflow_id = %s",
        [large, flow],
    )
    monkeypatch.setattr(store, "ENOUGH_BYTES", 1_000)
    worklist = Worklist(children=children)
    worklist.add(await worklist.step(clean_pool, None))
    assert (await states(clean_db, flow))[1].count("C") == 2 and len(worklist.children) == 1
    await worklist.work_off(clean_pool, None)
    assert await states(clean_db, flow) == ("COMPLETED", "CCC")


async def test_f71_large_arguments_are_written_by_several_steps(
    clean_db: Db, clean_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result of 700 bytes goes to each of those that wait for it."""
    monkeypatch.setattr(step, "ENOUGH_BYTES", 1_000)
    flow = await started(clean_db, node("a"), *(node(f"n{n}", 0, args_from={"x": 0}) for n in range(5)))
    worklist = Worklist(tasks=[await end_task_of(clean_db, flow, 0, result=json.dumps({"ok": "x" * 700}))])
    seen = []
    while worklist:
        worklist.add(await worklist.step(clean_pool, None))
        seen.append((await states(clean_db, flow))[1])
    assert seen == ["CEERRR", "CEEEER", "CEEEEE"]


async def test_f71_f95_and_so_are_the_elements_of_a_map(
    clean_db: Db, clean_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "ENOUGH_BYTES", 1_000)
    mapped = node("m", 0, node_type="MAP", map_options=MapOptions(0, "x"))
    flow = await started(clean_db, node("a"), mapped)
    worklist = Worklist(tasks=[await end_task_of(clean_db, flow, 0, result=json.dumps({"ok": ["x" * 700] * 3}))])
    worklist.add(await worklist.step(clean_pool, None))
    assert await states(clean_db, flow) == ("RUNNING", "CURRR"), "the elements themselves were enough"
    await worklist.work_off(clean_pool, None)
    assert await states(clean_db, flow) == ("RUNNING", "CUEEE")


async def test_f71_f95_many_maps_are_expanded_by_several_steps(
    clean_db: Db, clean_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "ENOUGH_BYTES", 1_000)
    maps = [node(f"m{n}", 0, node_type="MAP", map_options=MapOptions(0, "x", 1)) for n in range(4)]
    flow = await started(clean_db, node("a"), *maps)
    worklist = Worklist(tasks=[await end_task_of(clean_db, flow, 0, result=json.dumps({"ok": ["x" * 700] * 2}))])
    worklist.add(await worklist.step(clean_pool, None))
    assert (await states(clean_db, flow))[1].startswith("CURRR")
    await worklist.work_off(clean_pool, None)
    assert (await states(clean_db, flow))[1] == "CUUUU" + "ER" * 4
