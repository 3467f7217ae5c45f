"""What a step reads to find the READY nodes that it enqueues: about as many as these, however many more are READY. A
step takes some, and the next one looks again, so everything else would make a wide workflow slower than a narrow one.
"""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.db.connections import BY_INDEX
from horsies.core.store import workflows
from tests.store.plan_reading import explaining
from tests.store.test_plans import undisturbed

pytestmark = pytest.mark.usefixtures("superuser")

Db = AsyncConnection[Any]

MOST = 50
WIDE = 4_000

_FLOW = """
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes) VALUES ('w', 'w', 'w', 'RUNNING', 1)
"""
_NODES = """
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status, map_index,
                                        map_options)
    SELECT 'w', n, n, %(type)s, 't', %(status)s, %(map)s, %(options)s::jsonb
    FROM generate_series(%(first)s::int, %(first)s::int + %(count)s::int - 1) AS n
"""


class Graph:
    """A workflow that is written row by row; it knows what a step should find."""

    def __init__(self, conn: Db) -> None:
        self._conn = conn
        self._next = 0

    async def add(
        self, node_type: str, status: str, count: int = 1, *, of: int | None = None, options: str | None = None
    ) -> range:
        first, self._next = self._next, self._next + count
        given = {"type": node_type, "status": status, "first": first, "count": count, "map": of, "options": options}
        await self._conn.execute(_NODES, given)
        return range(first, self._next)

    async def map(self, at: int, running: int, ready: int, *, max_parallel: int | None) -> range:
        """The elements of the map node `at`, those that run in front; returns the READY ones."""
        first, places = self._next, "" if max_parallel is None else f', "max_parallel": {max_parallel}'
        await self._conn.execute(
            "UPDATE horsies_workflow_tasks SET map_options = %s WHERE task_index = %s",
            [f'{{"first": {first}, "count": {running + ready}{places}}}', at],
        )
        await self.add("ELEMENT", "RUNNING", running, of=at)
        return await self.add("ELEMENT", "READY", ready, of=at)


async def tasks(graph: Graph) -> list[int]:
    ready = await graph.add("TASK", "READY", WIDE)
    return [*ready[:MOST]]


async def sub_workflows_among_tasks(graph: Graph) -> list[int]:
    """Those in front do not hide the tasks; those at the end come when the tasks before them have been enqueued."""
    some = await graph.add("SUBWORKFLOW", "READY", 30)
    ready = await graph.add("TASK", "READY", 40)
    one = await graph.add("SUBWORKFLOW", "READY")
    more = await graph.add("TASK", "READY", WIDE)
    await graph.add("SUBWORKFLOW", "READY")
    return [*some, *ready, *one, *more[:10]]


async def sub_workflows_behind_few_tasks(graph: Graph) -> list[int]:
    await graph.add("TASK", "COMPLETED", WIDE)
    ready = await graph.add("TASK", "READY", MOST - 1)
    some = await graph.add("SUBWORKFLOW", "READY", MOST - 1)
    return [*ready, *some]


async def elements(graph: Graph) -> list[int]:
    """Of one map as many as there are, of one as it has places, of one none; then nodes that are READY beside them."""
    maps = await graph.add("MAP", "RUNNING", 3)
    ready = await graph.add("TASK", "READY", 3)
    some = await graph.add("SUBWORKFLOW", "READY", 2)
    await graph.add("TASK", "PENDING", 9)
    every = await graph.map(maps[0], 5, WIDE, max_parallel=None)
    free = await graph.map(maps[1], 5, WIDE, max_parallel=12)
    await graph.map(maps[2], 7, WIDE, max_parallel=7)
    return [*ready, *some, *every[:MOST], *free[:7]]


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("is_analyzed", [False, True])
@pytest.mark.parametrize("given", [tasks, sub_workflows_among_tasks, sub_workflows_behind_few_tasks, elements])
async def test_f95_d12_a_step_reads_the_ready_nodes_that_it_takes_and_not_all(
    database_url: str, given: Any, is_analyzed: bool, mode: str
) -> None:
    async with await AsyncConnection.connect(database_url, autocommit=True) as conn:
        await undisturbed(conn)
        await conn.execute(_FLOW)
        wanted = await given(Graph(conn))
        if is_analyzed:
            await conn.execute("VACUUM ANALYZE")
    found: list[workflows.Key] = []

    async def look(conn: Db) -> None:
        found.extend(await workflows.ready(conn, ["w"], MOST))

    async with explaining(database_url, BY_INDEX, mode) as session:
        [plan] = await session.plans(look)
    assert sorted(found) == [("w", index) for index in wanted]
    looked_at = plan.rows("horsies_workflow_tasks")
    assert looked_at <= 2 * len(wanted) + 2 * MOST, looked_at
    assert plan.buffers <= 2 * looked_at, plan.buffers
