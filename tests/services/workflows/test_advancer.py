"""The worker's advancer on a real database: what is put there moves its workflow, and a workflow that cannot be moved
keeps back no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from horsies.core.db.pool import Connection, Pool
from horsies.core.models.recovery import WorkerResilienceConfig
from horsies.core.recovery.reconcile import NobodyBuilds, Reconciler
from horsies.core.types.status import TaskStatus
from horsies.core.worker import advance as worker_advance
from horsies.core.worker.advance import Advancer, Lag
from horsies.core.workflows import step as workflow_step
from horsies.core.workflows.advance import Worklist
from horsies.core.workflows.step import StepBroken, StepResult
from tests.factories import given_node, given_task, given_worker, given_workflow
from tests.support import eventually

SOON = WorkerResilienceConfig(db_retry_initial_ms=100, db_retry_max_ms=500)


class Bench:
    """An advancer, and how often it has told that there are new tasks."""

    def __init__(self, pool: Pool) -> None:
        self.told = 0
        self.advancer = Advancer(pool, NobodyBuilds(), SOON, self._note)

    def _note(self) -> None:
        self.told += 1

    async def serve(self) -> None:
        while True:
            await self.advancer.step()

    async def rest(self) -> None:
        await eventually(lambda: self.advancer.is_idle, what="the advancer has nothing to do")


@pytest_asyncio.fixture
async def bench(clean_pool: Pool) -> AsyncIterator[Bench]:
    made = Bench(clean_pool)
    serving = asyncio.create_task(made.serve())
    yield made
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def given_ended(
    db: AsyncConnection[Any], nodes: int = 1, status: TaskStatus = TaskStatus.COMPLETED, **columns: Any
) -> tuple[str, list[str]]:
    """A workflow all of whose tasks have ended and whose nodes do not know it."""
    flow = await given_workflow(db, status="RUNNING", open_nodes=nodes)
    tasks = []
    async with db.transaction():
        for index in range(nodes):
            tasks.append(await given_task(db, status=status, result='{"ok": 1}', workflow_id=flow))
            await given_node(db, flow, task_index=index, status="RUNNING", task_id=tasks[-1], **columns)
    return flow, tasks


async def statuses(db: AsyncConnection[Any], *flows: str) -> list[str]:
    cursor = await db.execute("SELECT id, status FROM horsies_workflows WHERE id = ANY(%s)", [list(flows)])
    found = dict(await cursor.fetchall())
    return [found[flow] for flow in flows]


async def test_l32_f70_ends_of_many_workflows_are_taken_in(clean_db: AsyncConnection[Any], bench: Bench) -> None:
    """More of one than a transaction takes, and some that have not ended, or belong to nobody."""
    large, of_large = await given_ended(clean_db, 1_203)
    small = [await given_ended(clean_db) for _ in range(7)]
    open_flow, of_open = await given_ended(clean_db, status=TaskStatus.RUNNING)
    ends = [(task, flow) for flow, tasks in [(large, of_large), *small, (open_flow, of_open)] for task in tasks]
    bench.advancer.put_all([*ends, ("nobody's", "nothing")])
    await bench.rest()
    assert await statuses(clean_db, large, *(flow for flow, _ in small)) == ["COMPLETED"] * 8
    assert await statuses(clean_db, open_flow) == ["RUNNING"]
    bench.advancer.put_all(ends)  # again: nothing is left to move
    await bench.rest()
    assert bench.told == 0  # nothing was enqueued


async def test_l34_one_that_cannot_be_advanced_waits_apart(
    clean_db: AsyncConnection[Any], bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Its node names one that does not exist. It is tried again from time to time, with what has come in meanwhile."""
    flows = [await given_ended(clean_db) for _ in range(9)]
    broken, of_broken = await given_ended(clean_db, 2, dependents=[5])
    await clean_db.execute("UPDATE horsies_workflows SET open_nodes = 3 WHERE id = %s", [broken])
    ends = [(task, flow) for flow, tasks in flows for task in tasks]
    bench.advancer.put_all([*ends[:4], (of_broken[0], broken), *ends[4:]])
    await bench.rest()
    assert await statuses(clean_db, *(flow for flow, _ in flows)) == ["COMPLETED"] * 9
    await eventually(lambda: "cannot be advanced now" in caplog.text)
    assert {record.__dict__["horsies"]["workflow_id"] for record in caplog.records} == {broken}
    assert await statuses(clean_db, broken) == ["RUNNING"]
    bench.advancer.put(of_broken[1], broken)
    await given_node(clean_db, broken, task_index=5, status="PENDING", dependencies=[0, 1], deps_total=2, priority=1)
    await eventually(lambda: is_enqueued(clean_db, broken), what="what waited for both is enqueued")


async def is_enqueued(db: AsyncConnection[Any], flow: str) -> bool:
    cursor = await db.execute(
        "SELECT status FROM horsies_workflow_tasks WHERE workflow_id = %s AND task_index = 5", [flow]
    )
    return await cursor.fetchone() == ("ENQUEUED",)


async def test_r31_the_reaper_leaves_ends_to_a_worker_that_is_behind_and_takes_them_when_it_stands_still(
    clean_db: AsyncConnection[Any], clean_pool: Pool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One end in each step, and much longer than the grace ago."""
    monkeypatch.setattr(worker_advance, "AT_ONCE", 1)
    await given_worker(clean_db, "me")
    flow, tasks = await given_ended(clean_db, 6)
    await clean_db.execute(
        "UPDATE horsies_tasks SET claimed_by_worker_id = 'me', completed_at = now() - interval '4 s'"
        " WHERE id = ANY(%s)",
        [tasks],
    )
    lagging = Advancer(clean_pool, NobodyBuilds(), SOON, lambda: None, lag=Lag("me", every_s=0.0))
    lagging.put_all([(task, flow) for task in tasks])
    reconciler = Reconciler(clean_pool, None, timedelta(seconds=2))
    for _ in range(3):
        await lagging.step()
        assert await reconciler.run() == 0
    assert not caplog.records
    # It makes no more steps: they are taken from it, and the one who takes them says so.
    moved = await eventually(reconciler.run, timeout=30, what="the rest is moved on")
    assert moved == 4  # three nodes, and the workflow
    assert "3 nodes moved on" in caplog.text
    assert await statuses(clean_db, flow) == ["COMPLETED"]


class Busy:
    """The pool, while tasks end whenever somebody waits for a connection."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.meanwhile: Callable[[], None] = lambda: None

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        self.meanwhile()
        return self._pool.connection()


async def test_r31_a_mark_is_written_while_more_tasks_end(clean_db: AsyncConnection[Any], clean_pool: Pool) -> None:
    await given_worker(clean_db, "me")
    ended = [await given_ended(clean_db) for _ in range(3)]
    busy, left = Busy(clean_pool), iter([(task, flow) for flow, [task] in ended[1:]])
    lagging = Advancer(busy, NobodyBuilds(), SOON, lambda: None, lag=Lag("me", every_s=0.0))
    lagging.put(ended[0][1][0], ended[0][0])
    busy.meanwhile = lambda: lagging.put_all([one] if (one := next(left, None)) else [])
    while not lagging.is_idle:
        await lagging.step()
    assert await statuses(clean_db, *(flow for flow, _ in ended)) == ["COMPLETED"] * 3


async def test_f71_a_step_whose_rows_are_not_as_they_were_read_writes_nothing(
    clean_db: AsyncConnection[Any], clean_pool: Pool
) -> None:
    """The server notices it, because the commit is on its way with the moves. The same connection serves the next."""
    flow, [task] = await given_ended(clean_db, dependents=[1])
    await given_node(clean_db, flow, task_index=1, status="PENDING", task_name="next", deps_total=1)
    await clean_db.execute("UPDATE horsies_workflows SET open_nodes = 2 WHERE id = %s", [flow])
    await clean_db.execute(
        "CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
        "CREATE TRIGGER leave BEFORE UPDATE ON horsies_workflow_tasks FOR EACH ROW"
        " WHEN (OLD.task_index = 1) EXECUTE FUNCTION leave()"
    )
    with pytest.raises(StepBroken, match="nodes are not as they were read"):
        await Worklist(tasks=[task]).step(clean_pool, None)
    assert await nodes_of(clean_db, flow) == ["RUNNING", "PENDING"]
    await clean_db.execute("DROP FUNCTION leave CASCADE")
    assert (await Worklist(tasks=[task]).step(clean_pool, None)).enqueued == 1
    assert await nodes_of(clean_db, flow) == ["COMPLETED", "ENQUEUED"]


async def nodes_of(db: AsyncConnection[Any], flow: str) -> list[str]:
    query = "SELECT status FROM horsies_workflow_tasks WHERE workflow_id = %s ORDER BY task_index"
    return [row[0] for row in await (await db.execute(query, [flow])).fetchall()]


# Turns


async def test_l34_a_workflow_with_many_ends_takes_turns_with_the_others(
    clean_db: AsyncConnection[Any], clean_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it was there first, the others wait for one step of it only. And though others come all the time, as many
    as a step takes, it has its turns."""
    monkeypatch.setattr(worker_advance, "AT_ONCE", 4)
    advancer = Advancer(clean_pool, NobodyBuilds(), SOON, lambda: None)
    large, of_large = await given_ended(clean_db, 16)
    advancer.put_all((task, large) for task in of_large)
    small: list[str] = []

    async def more() -> None:
        for _ in range(4):
            flow, [task] = await given_ended(clean_db)
            advancer.put(task, flow)
            small.append(flow)

    await more()
    for _ in range(2):
        await advancer.step()
    assert await statuses(clean_db, *small) == ["COMPLETED"] * 4
    assert (await nodes_of(clean_db, large)).count("RUNNING") == 12
    for _ in range(12):
        await more()
        await advancer.step()
    assert await statuses(clean_db, large) == ["COMPLETED"]
    while not advancer.is_idle:
        await advancer.step()
    assert await statuses(clean_db, *small) == ["COMPLETED"] * len(small)


async def given_ready(db: AsyncConnection[Any], nodes: int) -> str:
    """A workflow with so many nodes that nobody has enqueued yet."""
    flow = await given_workflow(db, status="RUNNING", open_nodes=nodes)
    for index in range(nodes):
        await given_node(db, flow, task_index=index, status="READY", task_name="next", priority=1)
    return flow


async def test_l34_a_workflow_with_many_nodes_to_enqueue_takes_turns_with_the_others(
    clean_db: AsyncConnection[Any], clean_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a step leaves to do goes to the end of the line, whatever kind of work it is."""
    monkeypatch.setattr(workflow_step, "MOST", 2)
    advancer = Advancer(clean_pool, NobodyBuilds(), SOON, lambda: None)
    large, small = await given_ready(clean_db, 9), await given_ready(clean_db, 1)
    ended, [task] = await given_ended(clean_db)
    advancer._file(StepResult(flows={large: None, small: None}))
    advancer.put(task, ended)
    for _ in range(3):
        await advancer.step()
    assert await nodes_of(clean_db, small) == ["ENQUEUED"]
    assert await statuses(clean_db, ended) == ["COMPLETED"]
    assert (await nodes_of(clean_db, large)).count("ENQUEUED") == 2
    while not advancer.is_idle:
        await advancer.step()
    assert await nodes_of(clean_db, large) == ["ENQUEUED"] * 9


async def test_r35_in_reconciliation_a_workflow_with_many_nodes_to_enqueue_takes_turns_with_the_others(
    clean_db: AsyncConnection[Any], clean_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow_step, "MOST", 2)
    large, *small = [await given_ready(clean_db, count) for count in (9, 1, 1, 1)]
    worklist = Worklist(flows=dict.fromkeys([large, *small]))
    for _ in range(4):
        worklist.add(await worklist.step(clean_pool, None))
    assert [await nodes_of(clean_db, flow) for flow in small] == [["ENQUEUED"]] * 3
    assert (await nodes_of(clean_db, large)).count("ENQUEUED") == 2
    await worklist.work_off(clean_pool, None)
    assert await nodes_of(clean_db, large) == ["ENQUEUED"] * 9
