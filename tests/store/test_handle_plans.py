"""What a handle asks reads the rows it is about and nothing more (D-12), however many workflows there are, before and
after ANALYZE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.db.connections import BY_INDEX
from horsies.core.store import workflow_reads
from tests.conftest import fresh_database
from tests.store.plan_reading import Plan, explaining
from tests.store.test_plans import undisturbed

pytestmark = pytest.mark.usefixtures("superuser")

WIDE = 2_000
# Many small workflows; one with many nodes, the first of which is a workflow that has a child too.
FILLED = f"""
    SET session_replication_role = replica;
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes, output_index)
    SELECT 'w' || n, 'w', 'w', 'COMPLETED', 0, 2 FROM generate_series(1, 3000) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status, result)
    SELECT 'w' || n, i, 'n' || i, 'TASK', 't', 'COMPLETED', '{{"ok": 1}}'
    FROM generate_series(1, 3000) AS n, generate_series(0, 4) AS i;
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes)
    VALUES ('wide', 'w', 'w', 'RUNNING', {WIDE});
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status, sub_workflow_id)
    SELECT 'wide', i, 'n' || i, 'TASK', 't', 'RUNNING', CASE i WHEN 0 THEN 'w7' END
    FROM generate_series(0, {WIDE - 1}) AS i;
    UPDATE horsies_workflow_tasks SET sub_workflow_id = 'w8' WHERE workflow_id = 'w7' AND task_index = 1;
    UPDATE horsies_workflow_tasks SET status = 'PENDING', args_from = '{{"a": 0}}'
    WHERE workflow_id = 'w8' AND task_index = 4;
"""  # noqa: S608
IDS = [f"w{n}" for n in range(100, 200)]
# By name: the call, and how many rows of workflows and of nodes it may look at.
LOOKS: dict[str, tuple[Callable[[AsyncConnection[Any]], Awaitable[object]], int, int]] = {
    "ended": (lambda conn: workflow_reads.ended(conn, [*IDS, "none"]), 100, 100),
    "status": (lambda conn: workflow_reads.status(conn, "wide"), 1, 0),
    "definition_key": (lambda conn: workflow_reads.definition_key(conn, "wide"), 1, 0),
    "node": (lambda conn: workflow_reads.node(conn, "wide", "n1999"), 1, 1),
    "results": (lambda conn: workflow_reads.results(conn, "wide"), 0, WIDE),
    "nodes": (lambda conn: workflow_reads.nodes(conn, ["wide", "w7", "w8"], with_results=True), 0, WIDE + 10),
    "family": (lambda conn: workflow_reads.family(conn, "wide"), 4, WIDE + 10),
}


@pytest.fixture(scope="module")
def told(server_url: str, template: str) -> Iterator[dict[str, list[Plan]]]:
    """The plans of every look, without statistics and with them."""

    async def look(url: str) -> dict[str, list[Plan]]:
        plans: dict[str, list[Plan]] = {name: [] for name in LOOKS}
        async with await AsyncConnection.connect(url, autocommit=True) as conn:
            await undisturbed(conn)
            await conn.execute(FILLED.encode())
            for is_analysed in (False, True):
                if is_analysed:
                    await conn.execute("VACUUM ANALYZE")
                async with explaining(url, BY_INDEX, "auto") as session:
                    for name, (act, _, _) in LOOKS.items():
                        plans[name] += await session.plans(act)
        return plans

    with fresh_database(server_url, template) as url:
        yield asyncio.run(look(url))


@pytest.mark.parametrize("name", LOOKS)
def test_d12_a_handle_reads_what_it_asks_for(told: dict[str, list[Plan]], name: str) -> None:
    _, workflows, nodes = LOOKS[name]
    assert [plan.name for plan in told[name]] == [f"handles/{name}"] * 2
    for plan in told[name]:
        assert plan.whole_scans == set()
        for table, most in (("horsies_workflows", workflows), ("horsies_workflow_tasks", nodes)):
            assert plan.rows(table) <= most + plan.blur(table)
        assert plan.top["Actual Rows"] >= 1, "or nothing above would mean anything"
        assert plan.mismatches == 0
