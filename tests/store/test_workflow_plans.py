"""By which plans the engine's statements run (DESIGN: a node costs its out-degree, not the size of the graph or of the
tables): each entry point is run for a batch and taken back, with plans made anew and with plans that were made when the
tables were small; no growing table is read as a whole, and what is looked at is bounded by the batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
from psycopg import AsyncConnection

from horsies.core.db.connections import BY_INDEX
from horsies.core.models.workflow.plan import NodePlan, WorkflowPlan
from horsies.core.store import recovery, tasks
from horsies.core.tasks.moves import Claim
from horsies.core.workflows import control
from horsies.core.workflows.advance import Worklist
from horsies.core.workflows.layout import TreePosition, lay_out, write_layout
from tests.conftest import fresh_database
from tests.store.plan_reading import Explainer, Plan, explaining
from tests.store.test_plans import undisturbed
from tests.store.workflow_states import BATCH, grow, names, plant

pytestmark = pytest.mark.usefixtures("superuser")

Db: TypeAlias = AsyncConnection[Any]
Told: TypeAlias = dict[str, dict[str, list[Plan]]]  # how → act → plans

GROWING = ("horsies_tasks", "horsies_workflows", "horsies_workflow_tasks", "horsies_task_attempts")
MOST = 8 * BATCH  # rows of one table that one statement looks at
PLAN = WorkflowPlan("w", "w", tuple(NodePlan(f"n{n}", "TASK", "t", queue_name="q", priority=9) for n in range(BATCH)))


class Lent:
    """A pool that has this one connection."""

    def __init__(self, conn: Db) -> None:
        self._conn = conn

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Db]:
        yield self._conn


async def begin(conn: Db) -> bool:
    return await write_layout(conn, lay_out(PLAN, TreePosition("new", "new")))


async def start_nodes(conn: Db) -> None:
    claims = [Claim(name, 1) for name in names("t")]
    await tasks.start_nodes(conn, "w", "host", claims, [7] * len(claims), ["child"] * len(claims))


async def look_for_what_is_stuck(conn: Db) -> None:
    await recovery.nodes(conn, timedelta(0), most=BATCH)
    await recovery.overdue_nodes(conn, most=BATCH)
    await recovery.over(conn, most=BATCH)


async def lose(conn: Any) -> Any:
    """The row of a task is gone, and with it the word that its node had of it."""
    await conn.execute("UPDATE horsies_workflow_tasks SET task_id = NULL WHERE workflow_id = 'o2' AND task_index = 0")
    return await Worklist(lost=[("o2", 0)]).step(Lent(conn), None)


ACTS: dict[str, Callable[[Db], Awaitable[object]]] = {
    "tasks of many workflows": lambda conn: Worklist(tasks=names("t")).step(Lent(conn), None),
    "tasks of one large workflow": lambda conn: Worklist(tasks=names("b")).step(Lent(conn), None),
    "children": lambda conn: Worklist(children=names("c")).step(Lent(conn), None),
    "a workflow goes on": lambda conn: Worklist(flows={"o1": None}).step(Lent(conn), None),
    "the large one goes on": lambda conn: Worklist(flows={"large": None}).step(Lent(conn), None),
    "lost": lambda conn: lose(conn),
    "pause": lambda conn: control.pause(Lent(conn), "p5"),
    "resume": lambda conn: control.resume(Lent(conn), "paused", None),
    "cancel": lambda conn: control.cancel(Lent(conn), "p6", None),
    "retry": lambda conn: control.retry_nodes(Lent(conn), "failed", None, None),
    "expire": lambda conn: control.expire(Lent(conn), ["late1", "late2"], None),
    "begin": begin,
    "start nodes": start_nodes,
    "look for what is stuck": look_for_what_is_stuck,
}
# They move no node here.
STILL = {"start nodes", "begin", "look for what is stuck", "a workflow goes on", "the large one goes on", "pause"}


@pytest.fixture(scope="module")
def told(server_url: str, template: str) -> Iterator[Told]:
    with fresh_database(server_url, template) as url:
        yield asyncio.run(plant_grow_and_look(url))


async def plant_grow_and_look(url: str) -> Told:
    told: Told = {}
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        await undisturbed(conn)
        await plant(conn)
        async with explaining(url, BY_INDEX, "force_generic_plan") as kept:
            await look(kept)
            await grow(conn)
            told["made when little was there"] = await look(kept)
        for how in ("generic", "custom"):
            async with explaining(url, BY_INDEX, f"force_{how}_plan") as session:
                told[f"{how}, without statistics"] = await look(session)
        await conn.execute("VACUUM ANALYZE")
        for how in ("generic", "custom"):
            async with explaining(url, BY_INDEX, f"force_{how}_plan") as session:
                told[f"{how}, with statistics"] = await look(session)
    return told


async def look(session: Explainer) -> dict[str, list[Plan]]:
    return {name: await session.plans(act) for name, act in ACTS.items()}


@pytest.mark.parametrize("act", ACTS)
def test_d12_d50_the_engine_reads_what_its_batch_needs(told: Told, act: str) -> None:
    wrong = []
    for how, plans in told.items():
        assert plans[act], "nothing was run"
        for plan in plans[act]:
            whole = plan.whole_scans.intersection(GROWING)
            much = {table: plan.rows(table) for table in GROWING if plan.rows(table) > MOST}
            if whole or much:
                wrong.append(f"{how}: {plan.name[:60]!r} reads all of {whole}, looks at {much}")
    assert wrong == []


def test_d12_the_acts_do_something(told: Told) -> None:
    """Or nothing above would mean anything: those that move nodes have moved them."""
    for how, plans in told.items():
        for act in ACTS.keys() - STILL:
            moved = [plan for plan in plans[act] if plan.name == "workflows/move_nodes"]
            assert moved and moved[0].top["Actual Rows"] > 0, (how, act)
        [start] = [plan for plan in plans["start nodes"] if plan.name == "workflows/start_nodes"]
        assert start.top["Actual Rows"] == BATCH, how
