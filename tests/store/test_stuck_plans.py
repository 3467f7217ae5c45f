"""Which index serves the looks of reconciliation, and that they read what they look at and nothing more (R-17): on
tables with much that is over and much that is under way, before and after ANALYZE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.db.connections import BY_INDEX
from horsies.core.store import recovery
from horsies.core.store.recovery import Due, NodePosition
from tests.conftest import fresh_database
from tests.store.plan_reading import Plan, explaining
from tests.store.test_plans import undisturbed

pytestmark = pytest.mark.usefixtures("superuser")

GRACE = timedelta(seconds=10)
BATCH = 200
# Ended workflows of ten nodes each, and running ones: a wide one with everything enqueued, many small ones, and a map
# that waits for a place. A thousand are past their deadline, and ten have lost their end.
FILLED = """
    SET session_replication_role = replica;
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes, completed_at)
    SELECT 'e' || n, 'w', 'w', 'COMPLETED', 0, now() - interval '1 day' FROM generate_series(1, 8000) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status, task_id)
    SELECT 'e' || n, i, i, 'TASK', 't', 'COMPLETED', 'e' || n || '.' || i
    FROM generate_series(1, 8000) AS n, generate_series(1, 10) AS i;
    INSERT INTO horsies_tasks (id, task_name, status, completed_at, workflow_id)
    SELECT 'e' || n || '.' || i, 't', 'COMPLETED', now() - interval '1 day', 'e' || n
    FROM generate_series(1, 8000) AS n, generate_series(1, 10) AS i;

    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes, good_until)
    SELECT 'r' || n, 'w', 'w', 'RUNNING', 1,
           CASE WHEN n <= 1000 THEN now() - interval '1 h' WHEN n % 2 = 0 THEN '9999-01-01' END
    FROM generate_series(1, 10000) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status, task_id)
    SELECT 'r' || n, 0, 'n', 'TASK', 't', 'RUNNING', 'r' || n FROM generate_series(1, 10000) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status)
    SELECT 'r' || n, 1, 'p', 'TASK', 't', 'PENDING' FROM generate_series(1, 10000) AS n WHERE n % 10 > 0;
    INSERT INTO horsies_tasks (id, task_name, status, claimed, started_at, workflow_id)
    SELECT 'r' || n, 't', 'RUNNING', TRUE, now(), 'r' || n FROM generate_series(1, 10000) AS n;

    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes)
    VALUES ('wide', 'w', 'w', 'RUNNING', 10000), ('map', 'w', 'w', 'RUNNING', 1);
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status, task_id)
    SELECT 'wide', n, n, 'TASK', 't', 'ENQUEUED', 'w' || n FROM generate_series(1, 10000) AS n;
    INSERT INTO horsies_tasks (id, task_name, status, failed_at, workflow_id)
    SELECT 'w' || n, 't', 'FAILED', now() - interval '1 min', 'wide' FROM generate_series(1, 10000) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status, map_options,
                                        updated_at)
    VALUES ('map', 0, 'm', 'MAP', 't', 'RUNNING', '{"first": 1, "count": 10000, "max_parallel": 4}', '2020-01-01');
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status, task_id,
                                        map_index, ready_at)
    SELECT 'map', n, n, 'ELEMENT', 't', CASE WHEN n <= 9996 THEN 'READY' ELSE 'ENQUEUED' END,
           CASE WHEN n > 9996 THEN 'm' || n END, 0, now() - interval '1 h' FROM generate_series(1, 10000) AS n;
    INSERT INTO horsies_tasks (id, task_name, workflow_id)
    SELECT 'm' || n, 't', 'map' FROM generate_series(9997, 10000) AS n;
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes) VALUES ('s', 'w', 'w', 'RUNNING', 9);
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status, ready_at)
    SELECT 's', n, n, 'TASK', 't', 'READY', now() - interval '1 h' FROM generate_series(1, 10000) AS n;
    UPDATE horsies_workflows SET open_nodes = 0 WHERE id IN (SELECT 'r' || n || '00' FROM generate_series(20, 29) AS n);
"""
NODES, PKEY = "horsies_workflow_tasks", "horsies_tasks_pkey"
LOOKS: dict[str, tuple[str, Callable[[AsyncConnection[Any]], Awaitable[object]], set[str], int]] = {
    # By name: its statement, the call, the indexes of its first table, how many rows it may look at in any table.
    "among many small ones": (
        "workflows/find_stuck",
        lambda conn: recovery.nodes(conn, GRACE, NodePosition("n", 0), BATCH),
        {f"{NODES}_in_flight_idx"},
        2 * BATCH,
    ),
    "inside a wide one": (
        "workflows/find_stuck",
        lambda conn: recovery.nodes(conn, GRACE, NodePosition("wide", 5000), BATCH),
        {f"{NODES}_in_flight_idx"},
        2 * BATCH,
    ),
    "among elements that wait": (
        "workflows/find_stuck",
        lambda conn: recovery.nodes(conn, GRACE, NodePosition("map", 5000), BATCH),
        {f"{NODES}_in_flight_idx", f"{NODES}_workflow_id_task_index_key"},
        # Those that wait are passed once to find the ones that are on their way, which are behind them.
        2 * BATCH + 10_000,
    ),
    "among nodes that are ready": (
        "workflows/find_stuck",
        lambda conn: recovery.nodes(conn, GRACE, NodePosition("s", 5000), BATCH),
        {f"{NODES}_in_flight_idx"},
        BATCH,
    ),
    "deadlines": (
        "workflows/find_overdue",
        lambda conn: recovery.overdue_nodes(conn, Due("2020-01-01", ""), BATCH),
        {f"{NODES}_status_idx"},
        3 * BATCH,
    ),
    "whether there is any": (
        "workflows/is_any_open",
        recovery.is_any_workflow_open,
        {f"{NODES}_in_flight_idx"},
        1,
    ),
    "without an open node": ("workflows/find_over", lambda conn: recovery.over(conn, most=BATCH), set(), BATCH),
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
                    for name, (_, act, _, _) in LOOKS.items():
                        plans[name] += await session.plans(act)
        return plans

    with fresh_database(server_url, template) as url:
        yield asyncio.run(look(url))


def _found_by(plan: Plan) -> set[str]:
    """The indexes of its first table. Beside the nodes in flight, those that wait are found by either of two others, as
    the sample of ANALYZE has it; both read the nodes of one workflow in order."""
    found = plan.indexes(NODES)
    either = f"{NODES}_status_idx"
    if f"{NODES}_in_flight_idx" in found and either in found:
        return found - {either} | {f"{NODES}_workflow_id_task_index_key"}
    return found


@pytest.mark.parametrize("name", LOOKS)
def test_r17_a_look_reads_what_it_looks_at_by_its_index(
    told: dict[str, list[Plan]], name: str, server_version: int
) -> None:
    statement, _, indexes, rows = LOOKS[name]
    assert [plan.name for plan in told[name]] == [statement] * 2
    for plan in told[name]:
        assert plan.whole_scans <= {"horsies_workers"}  # a row for each worker
        assert _found_by(plan) == indexes
        seen = {table: plan.rows(table) for table in (NODES, "horsies_workflows", "horsies_tasks")}
        assert max(seen.values()) <= rows, seen
        assert plan.sorted <= BATCH
        # Before PostgreSQL 17 an index is descended once for each of several states.
        assert plan.buffers <= (12 if server_version >= 17 else 15) * BATCH, plan.buffers


def test_r35_the_workflow_of_many_ready_nodes_is_not_looked_at_for_each(told: dict[str, list[Plan]]) -> None:
    """For the one that is found it is, and once more when its row is returned."""
    assert {plan.rows("horsies_workflows") for plan in told["among nodes that are ready"]} <= {1, 2}


def test_r17_the_looks_find_what_is_there(told: dict[str, list[Plan]]) -> None:
    """Or nothing above would mean anything."""
    found = {name: [plan.top["Actual Rows"] for plan in plans] for name, plans in told.items()}
    assert found == {
        "among many small ones": [1, 1],  # none of these is stuck: the last one says where the look was
        "inside a wide one": [BATCH, BATCH],
        "among elements that wait": [1, 1],
        "among nodes that are ready": [2, 2],  # the oldest, and the last
        "deadlines": [pytest.approx(BATCH * 0.9, abs=5)] * 2,
        "whether there is any": [1, 1],
        "without an open node": [10, 10],
    }
