"""Reconciliation on a real database (R-30 to R-38): each standstill that a death between two transactions can leave,
and what the engine makes of it. Who is found, and when, is tried statement by statement in `tests/store`.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.db.connections import BY_INDEX, make_pool
from horsies.core.db.pool import Pool
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.workflow.plan import MapOptions, WorkflowPlan
from horsies.core.models.workflow.registry import BuildFailed, BuildRequest
from horsies.core.recovery.reconcile import Reconciler
from horsies.core.types.status import TaskStatus
from horsies.core.workflows import control
from horsies.core.workflows.advance import advance
from tests.factories import task_row
from tests.services.workflows.flows import (
    OK,
    child_node,
    child_of,
    count_tasks_of,
    end_task_of,
    node,
    node_row,
    plan,
    started,
    states,
)

GRACE = timedelta(seconds=10)

Db = AsyncConnection[Any]


class Children:
    """Builds the same child for everybody, or fails as told."""

    def __init__(self, *problems: Exception) -> None:
        self.asked: list[BuildRequest] = []
        self._problems = list(problems)

    async def build(self, request: BuildRequest) -> WorkflowPlan:
        self.asked.append(request)
        if self._problems:
            raise self._problems.pop(0)
        return plan(node("inside"), definition_key="child")


@pytest.fixture
def db(clean_db: Db) -> Db:
    return clean_db


@pytest.fixture
def pool(clean_pool: Pool) -> Pool:
    return clean_pool


@pytest.fixture
async def hasty_pool(module_url: str) -> AsyncIterator[Pool]:
    """Waits for locks as briefly as a worker's does."""
    settings = f"{BY_INDEX} -c lock_timeout=50"
    pool = make_pool(PostgresConfig(database_url=module_url), min_size=1, max_size=2, options=settings)
    yield pool
    await pool.close()


class Slow:
    """A pool whose server takes its time; it counts how often it is asked for a connection."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.asked = 0

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Db]:
        self.asked += 1
        async with self._pool.connection() as conn:
            await conn.execute("SELECT pg_sleep(0.5)")
            yield conn


@pytest.mark.parametrize("look", [1, 2_000])
async def test_r30_after_a_look_at_very_many_nodes_there_is_a_rest(db: Db, pool: Pool, look: int) -> None:
    """Of nine times as long as that took. With less than a look of nodes there is none; and who asks by hand is not
    put off (R-37)."""
    flow = await started(db, *(node(f"n{n}") for n in range(4)))
    slow = Slow(pool)
    walking = Reconciler(slow, Children(), GRACE, look=look)
    assert await walking.reconcile(math.inf) == 0
    seen = slow.asked
    await end_task_of(db, flow, 0)
    assert await walking.reconcile(math.inf) == (0 if look == 1 else 1)
    assert (slow.asked == seen) is (look == 1)
    assert await walking.run() == (1 if look == 1 else 0)


def reconciler(pool: Pool, builder: Children | None = None, **more: Any) -> Reconciler:
    return Reconciler(pool, builder or Children(), GRACE, **more)


async def error_code(db: Db, workflow_id: str, index: int) -> str:
    """By the column and by the stored result, which must say the same."""
    row = await node_row(db, workflow_id, index)
    code = json.loads(row["result"])["err"]["error_code"]
    assert (code["__builtin_task_code__"] if isinstance(code, dict) else code) == row["error_code"]
    return str(row["error_code"])


# A task has ended, and nobody has advanced its workflow


async def test_r30_r33_the_end_of_a_task_that_nobody_took_in_takes_its_usual_way(db: Db, pool: Pool) -> None:
    workflow_id = await started(db, node("a"), node("b", 0), node("c", 1), output_index=2)
    await end_task_of(db, workflow_id, 0, result='{"ok":{"x":5}}')
    assert await reconciler(pool).run() > 0
    assert await states(db, workflow_id) == ("RUNNING", "CEP")
    assert (await node_row(db, workflow_id, 0))["result"] == '{"ok":{"x":5}}'
    assert (await task_row(db, (await node_row(db, workflow_id, 1))["task_id"]))["status"] == "PENDING"


async def test_r30_r33_to_the_very_end(db: Db, pool: Pool) -> None:
    workflow_id = await started(db, node("a"), node("b", 0), output_index=1)
    for index in (0, 1):
        await end_task_of(db, workflow_id, index, result=f'{{"ok":{index}}}')
        await reconciler(pool).run()
    assert await states(db, workflow_id) == ("COMPLETED", "CC")
    row = await (await db.execute("SELECT result, open_nodes FROM horsies_workflows")).fetchone()
    assert row == ('{"ok":1}', 0)


async def test_r30_who_comes_second_finds_nothing_to_do(db: Db, pool: Pool) -> None:
    workflow_id = await started(db, node("a"), node("b", 0))
    await end_task_of(db, workflow_id, 0)
    both = await asyncio.gather(reconciler(pool).run(), reconciler(pool).run())
    assert await reconciler(pool).run() == 0
    assert sorted(both)[1] > 0
    assert await count_tasks_of(db, workflow_id) == 2, "enqueued once"


async def test_r31_a_finalizer_between_its_two_transactions_is_not_raced(db: Db, pool: Pool) -> None:
    workflow_id = await started(db, node("a"), node("b", 0))
    await end_task_of(db, workflow_id, 0, seconds_ago=0.0)
    assert await reconciler(pool).run() == 0
    assert await states(db, workflow_id) == ("RUNNING", "EP")
    assert await Reconciler(pool, Children(), timedelta(0)).run() > 0, "no grace: at once (R-04)"
    assert await states(db, workflow_id) == ("RUNNING", "CE")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (TaskStatus.FAILED, "WORKER_CRASHED"),
        (TaskStatus.CANCELLED, "TASK_CANCELLED"),
        (TaskStatus.COMPLETED, "RESULT_NOT_AVAILABLE"),
        (TaskStatus.EXPIRED, "TASK_EXPIRED"),
    ],
)
async def test_f22_r32_a_result_that_is_not_there_is_made(db: Db, pool: Pool, status: TaskStatus, code: str) -> None:
    workflow_id = await started(db, node("a"), node("b", 0))
    await end_task_of(db, workflow_id, 0, status, None)
    await reconciler(pool).run()
    assert await states(db, workflow_id) == ("FAILED", "FS")
    assert await error_code(db, workflow_id, 0) == code


async def test_r32_a_stored_result_is_the_nodes(db: Db, pool: Pool) -> None:
    workflow_id = await started(db, node("a"))
    result = '{"err":{"error_code":"MINE","message":"m","data":null}}'
    await end_task_of(db, workflow_id, 0, TaskStatus.FAILED, result)
    await reconciler(pool).run()
    assert (await node_row(db, workflow_id, 0))["result"] == result
    assert await error_code(db, workflow_id, 0) == "MINE"


async def test_f41_r33_the_error_policy_is_applied(db: Db, pool: Pool) -> None:
    workflow_id = await started(db, node("a"), node("b", 0), node("c"), on_error="PAUSE")
    await end_task_of(db, workflow_id, 0, TaskStatus.FAILED, None)
    await reconciler(pool).run()
    assert await states(db, workflow_id) == ("PAUSED", "FPE")


async def test_f22_f44_a_task_that_waits_for_its_retry_leaves_its_node_as_it_is(db: Db, pool: Pool) -> None:
    """However often: only its final outcome reaches the workflow."""
    workflow_id = await started(db, node("a"), node("b", 0))
    await db.execute("UPDATE horsies_workflow_tasks SET status = 'RUNNING' WHERE task_index = 0")
    task_id = (await node_row(db, workflow_id, 0))["task_id"]
    for retry in (1, 2):
        await db.execute("UPDATE horsies_tasks SET retry_count = %s, updated_at = '2020-01-01'", [retry])
        assert (await advance(pool, [task_id], None)).nodes == await reconciler(pool).run() == 0
        assert await states(db, workflow_id) == ("RUNNING", "UP")
    await end_task_of(db, workflow_id, 0, TaskStatus.FAILED, None)
    await reconciler(pool).run()
    assert await states(db, workflow_id) == ("FAILED", "FS")


async def test_f43_the_error_is_that_of_the_required_node_that_failed_first(db: Db, pool: Pool) -> None:
    """By the time of their ends, not by their order; one that is optional does not count."""
    policy = {"cases": [[0, 1]], "optional": [2]}
    workflow_id = await started(db, node("a"), node("b"), node("c"), success_policy=policy)
    for index, code in ((2, "OPTIONAL"), (1, "SECOND"), (0, "FIRST")):
        error = json.dumps({"err": {"error_code": code, "message": "m", "data": None}})
        await end_task_of(db, workflow_id, index, TaskStatus.FAILED, error)
        await reconciler(pool).run()
    row = await (await db.execute("SELECT status, error_code FROM horsies_workflows")).fetchone()
    assert row == ("FAILED", "SECOND")
    unmet = await started(db, node("a"), node("b", 0), success_policy={"cases": [[1]], "optional": [0]})
    await end_task_of(db, unmet, 0, TaskStatus.FAILED, None)
    await reconciler(pool).run()
    row = await (await db.execute("SELECT status, error_code FROM horsies_workflows WHERE id = %s", [unmet])).fetchone()
    assert row == ("FAILED", "WORKFLOW_SUCCESS_CASE_NOT_MET")


async def test_r30_in_a_paused_workflow_only_the_node_itself_moves(db: Db, pool: Pool) -> None:
    workflow_id = await started(db, node("a"), node("b", 0))
    await control.pause(pool, workflow_id)
    await end_task_of(db, workflow_id, 0)
    await reconciler(pool).run()
    assert await states(db, workflow_id) == ("PAUSED", "CP")


async def test_r30_r33_elements_of_a_map_are_nodes_like_others(db: Db, pool: Pool) -> None:
    mapped = node("m", 0, node_type="MAP", map_options=MapOptions(0, "x", 1))
    workflow_id = await started(db, node("list"), mapped)
    await end_task_of(db, workflow_id, 0, result='{"ok":[7,8]}')
    await reconciler(pool).run()
    assert await states(db, workflow_id) == ("RUNNING", "CUER")
    for index, after in ((2, ("RUNNING", "CUCE")), (3, ("COMPLETED", "CCCC"))):
        await end_task_of(db, workflow_id, index)
        await reconciler(pool).run()
        assert await states(db, workflow_id) == after


# Rows that are not there any more, tasks that came back too late


async def test_r34_the_end_of_a_child_reaches_its_parent(db: Db, pool: Pool) -> None:
    children = {0: plan(node("inside"), output_index=0)}
    workflow_id = await started(db, child_node("sub"), node("b", 0), children=children)
    child = await child_of(db, workflow_id, 0)
    await db.execute(
        "UPDATE horsies_workflows SET status = 'COMPLETED', result = %s, open_nodes = 0, completed_at = '2020-01-01' "
        "WHERE id = %s",
        ['{"ok":"done"}', child],
    )
    await db.execute("UPDATE horsies_workflow_tasks SET status = 'COMPLETED' WHERE workflow_id = %s", [child])
    assert await reconciler(pool).run() > 0
    assert await states(db, workflow_id) == ("RUNNING", "CE")
    assert (await node_row(db, workflow_id, 0))["result"] == '{"ok":"done"}'


async def test_r34_a_node_whose_task_is_gone_fails(db: Db, pool: Pool) -> None:
    workflow_id = await started(db, node("a"), node("b", 0, allow_failed_deps=True))
    await db.execute("DELETE FROM horsies_tasks WHERE workflow_id = %s", [workflow_id])
    await reconciler(pool).run()
    assert await states(db, workflow_id) == ("RUNNING", "FE")
    assert await error_code(db, workflow_id, 0) == "RESULT_NOT_AVAILABLE"


async def test_r34_a_node_whose_child_is_gone_fails(db: Db, pool: Pool) -> None:
    workflow_id = await started(db, child_node("sub"), children={0: plan(node("inside"))})
    await db.execute("DELETE FROM horsies_workflows WHERE parent_workflow_id = %s", [workflow_id])
    await reconciler(pool).run()
    assert await states(db, workflow_id) == ("FAILED", "F")
    assert await error_code(db, workflow_id, 0) == "RESULT_NOT_AVAILABLE"


async def test_r34_l17_a_task_that_came_back_when_its_workflow_had_ended_is_cancelled(db: Db, pool: Pool) -> None:
    """As a retry that crosses a cancel leaves it."""
    workflow_id = await started(db, node("a"), node("b", 0))
    await db.execute("UPDATE horsies_tasks SET status = 'RUNNING', claimed = TRUE")
    await db.execute("UPDATE horsies_workflow_tasks SET status = 'RUNNING' WHERE task_index = 0")
    await control.cancel(pool, workflow_id, None)
    assert await states(db, workflow_id) == ("CANCELLED", "US")
    await db.execute("UPDATE horsies_tasks SET status = 'PENDING', claimed = FALSE")
    assert await reconciler(pool).run() > 0
    assert await states(db, workflow_id) == ("CANCELLED", "FS")
    assert await error_code(db, workflow_id, 0) == "TASK_CANCELLED"
    row = await task_row(db, (await node_row(db, workflow_id, 0))["task_id"])
    assert (row["status"], row["error_code"]) == ("CANCELLED", "TASK_CANCELLED")


# Nodes that nobody has enqueued


async def given_ready(db: Db, workflow_id: str, index: int = 0) -> None:
    """READY long ago, by somebody who died before the next step."""
    await db.execute(
        "UPDATE horsies_workflow_tasks SET status = 'READY', task_id = NULL, ready_at = '2020-01-01' "
        "WHERE workflow_id = %s AND task_index = %s",
        [workflow_id, index],
    )


async def test_r35_a_ready_node_is_enqueued(db: Db, pool: Pool) -> None:
    workflow_id = await started(db, node("a", kwargs_json='{"x":3}'), node("b", 0))
    await given_ready(db, workflow_id)
    assert await reconciler(pool).run() > 0
    assert await states(db, workflow_id) == ("RUNNING", "EP")
    row = await task_row(db, (await node_row(db, workflow_id, 0))["task_id"])
    assert (row["status"], row["workflow_id"], json.loads(row["kwargs"])) == ("PENDING", workflow_id, {"x": 3})


async def test_r35_a_child_that_nobody_has_built_is_built(db: Db, pool: Pool) -> None:
    workflow_id = await started(db, node("a"), child_node("sub", 0, kwargs_json='{"n":1}', args_from={"p": 0}))
    await end_task_of(db, workflow_id, 0)
    lost = Children(RuntimeError("the helper died"))
    await reconciler(pool, lost).run()
    assert await states(db, workflow_id) == ("RUNNING", "CR"), "to be retried"
    await given_ready(db, workflow_id, 1)
    builder = Children()
    assert await reconciler(pool, builder).run() > 0
    assert await states(db, workflow_id) == ("RUNNING", "CU")
    assert await states(db, await child_of(db, workflow_id, 1)) == ("RUNNING", "E")
    assert builder.asked == [BuildRequest("child", '{"n":1}', {"p": OK}, 1)]


async def test_f64_r35_a_child_that_cannot_be_built_fails_its_node(db: Db, pool: Pool) -> None:
    workflow_id = await started(db, child_node("sub"))
    await given_ready(db, workflow_id)
    await reconciler(pool, Children(BuildFailed("unknown"))).run()
    assert await states(db, workflow_id) == ("FAILED", "F")
    assert await error_code(db, workflow_id, 0) == "SUBWORKFLOW_LOAD_FAILED"


async def test_r35_who_has_no_application_leaves_children_to_the_workers(db: Db, pool: Pool) -> None:
    workflow_id, other = await started(db, child_node("sub")), await started(db, node("a"))
    await given_ready(db, workflow_id)
    await given_ready(db, other)
    await Reconciler(pool, None, GRACE).run()
    assert await states(db, workflow_id) == ("RUNNING", "R")
    assert await states(db, other) == ("RUNNING", "E")


# Workflows


async def test_r36_a_running_workflow_without_an_open_node_is_ended(db: Db, pool: Pool) -> None:
    workflow_id = await started(db, node("a"), output_index=0)
    await db.execute("UPDATE horsies_workflow_tasks SET status = 'COMPLETED', result = %s", ['{"ok":"out"}'])
    await db.execute("UPDATE horsies_workflows SET open_nodes = 0")
    assert await reconciler(pool).run() == 1
    assert await states(db, workflow_id) == ("COMPLETED", "C")
    row = await (await db.execute("SELECT result, completed_at IS NOT NULL FROM horsies_workflows")).fetchone()
    assert row == ('{"ok":"out"}', True)


async def test_f75_r36_a_child_that_is_ended_so_moves_its_parent_in_the_same_pass(db: Db, pool: Pool) -> None:
    workflow_id = await started(db, child_node("sub"), children={0: plan(node("inside"))})
    child = await child_of(db, workflow_id, 0)
    ended = "UPDATE horsies_workflow_tasks SET status = 'COMPLETED', result = %s WHERE workflow_id = %s"
    await db.execute(ended, [OK, child])
    await db.execute("UPDATE horsies_workflows SET open_nodes = 0 WHERE id = %s", [child])
    await reconciler(pool).end_workflows(float("inf"))
    assert await states(db, child) == ("COMPLETED", "C")
    assert await states(db, workflow_id) == ("COMPLETED", "C")


@pytest.mark.parametrize("is_paused", [False, True])
async def test_f96_r38_a_workflow_past_its_deadline_is_ended(db: Db, pool: Pool, is_paused: bool) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    workflow_id = await started(db, node("a"), node("b", 0), good_until=soon)
    if is_paused:
        await control.pause(pool, workflow_id)
    assert await reconciler(pool).run() == 0
    await db.execute("UPDATE horsies_workflows SET good_until = now()")
    assert await reconciler(pool).run() > 0
    assert await states(db, workflow_id) == ("FAILED", "SS")
    row = await (await db.execute("SELECT error_code FROM horsies_workflows")).fetchone()
    assert row == ("WORKFLOW_EXPIRED",)
    assert [row[0] for row in await (await db.execute("SELECT status FROM horsies_tasks")).fetchall()] == ["CANCELLED"]


async def test_r38_what_runs_may_finish(db: Db, pool: Pool) -> None:
    workflow_id = await started(db, node("a"), node("b", 0), good_until=datetime.now(UTC) - timedelta(seconds=1))
    await db.execute("UPDATE horsies_tasks SET status = 'RUNNING', claimed = TRUE")
    await db.execute("UPDATE horsies_workflow_tasks SET status = 'RUNNING' WHERE task_index = 0")
    await reconciler(pool).run()
    assert await states(db, workflow_id) == ("RUNNING", "US")
    assert await reconciler(pool).run() == 0, "it is only waited for"
    await end_task_of(db, workflow_id, 0)
    await reconciler(pool).run()
    assert await states(db, workflow_id) == ("FAILED", "CS")


# How it goes about it


async def test_r17_the_walk_goes_on_at_the_next_tick_where_it_stopped(db: Db, pool: Pool) -> None:
    """Each look reads two nodes, and there is time for one look: nobody is behind for ever."""
    ids = sorted([await started(db, node("a"), node("b"), node("c")) for _ in range(3)])
    for workflow_id in ids:
        await end_task_of(db, workflow_id, 2)
    small = reconciler(pool, look=2)
    seen = []
    for _ in range(6):
        await small.reconcile(until=0.0)
        seen.append([(await states(db, workflow_id))[1][2] for workflow_id in ids].count("C"))
    assert seen == [0, 1, 2, 2, 3, 3], "of nine nodes the third, sixth and ninth are found"


async def test_r17_one_that_is_locked_or_refused_does_not_keep_back_the_others(
    db: Db, hasty_pool: Pool, module_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [await started(db, node("a")) for _ in range(6)]
    for workflow_id in ids:
        await end_task_of(db, workflow_id, 0)
    async with await psycopg.AsyncConnection.connect(module_url) as other:
        await other.execute("SELECT FROM horsies_workflows WHERE id = %s FOR UPDATE", [ids[3]])
        await reconciler(hasty_pool).run()
        ended = [workflow_id for workflow_id in ids if (await states(db, workflow_id))[0] == "COMPLETED"]
        assert ended == [*ids[:3], *ids[4:]]
    await reconciler(hasty_pool).run()
    assert await states(db, ids[3]) == ("COMPLETED", "C")


async def test_r15_reconcilers_of_many_workers_work_at_the_same_time(db: Db, pool: Pool) -> None:
    ids = [await started(db, *(node(f"n{index}") for index in range(4)), node("join", 0, 1, 2, 3)) for _ in range(5)]
    for workflow_id in ids:
        for index in range(4):
            await end_task_of(db, workflow_id, index)
    await asyncio.gather(*(reconciler(pool, look=7).run() for _ in range(4)))
    assert [await states(db, workflow_id) for workflow_id in ids] == [("RUNNING", "CCCCE")] * 5
    assert [await count_tasks_of(db, workflow_id) for workflow_id in ids] == [5] * 5
