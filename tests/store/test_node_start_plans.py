"""The statement that starts tasks of workflows looks at its batch and nothing more: in both kinds of sessions
that start tasks, with a plan kept from an empty table, without statistics and with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.db.connections import BY_INDEX, IN_BULK
from horsies.core.store import tasks
from horsies.core.tasks.moves import Claim
from tests.conftest import fresh_database
from tests.store.plan_reading import Explainer, Plan, explaining
from tests.store.test_plans import undisturbed

pytestmark = pytest.mark.usefixtures("superuser")

BATCH = 200
NODES = "horsies_workflow_tasks"
SESSIONS = {"by index": BY_INDEX, "in bulk": IN_BULK}
STATEMENT = "workflows/start_nodes"
# One wide workflow with everything enqueued, and many that are over.
FILLED = """
    SET session_replication_role = replica;
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes)
    SELECT CASE n WHEN 0 THEN 'wide' ELSE 'e' || n END, 'w', 'w', CASE n WHEN 0 THEN 'RUNNING' ELSE 'COMPLETED' END, 0
    FROM generate_series(0, 4000) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status, task_id)
    SELECT 'wide', n, n, 'TASK', 't', 'ENQUEUED', 'w' || n FROM generate_series(1, 10000) AS n
    UNION ALL SELECT 'e' || n, i, i, 'TASK', 't', 'COMPLETED', 'e' || n || '.' || i
    FROM generate_series(1, 4000) AS n, generate_series(1, 5) AS i;
    INSERT INTO horsies_tasks (id, task_name, status, workflow_id, claim_seq, claimed_by_worker_id)
    SELECT task_id, 't', CASE status WHEN 'ENQUEUED' THEN 'CLAIMED' ELSE 'COMPLETED' END, workflow_id, 1, 'me'
    FROM horsies_workflow_tasks;
"""


async def start(conn: AsyncConnection[Any]) -> None:
    ids = [f"w{n}" for n in range(5_001, 5_001 + BATCH)]
    claims = [Claim(name, 1) for name in ids]
    await tasks.start_nodes(conn, "me", "host", claims, [7] * BATCH, ["child"] * BATCH)


@pytest.fixture(scope="module")
def told(server_url: str, template: str) -> Iterator[dict[str, list[Plan]]]:
    """The plans by how they came to be."""

    async def look(url: str) -> dict[str, list[Plan]]:
        plans: dict[str, list[Plan]] = {}

        async def note(how: str, sessions: dict[str, Explainer]) -> None:
            for name, session in sessions.items():
                plans[f"{how}, {name}"] = await session.plans(start)

        async with await AsyncConnection.connect(url, autocommit=True) as conn, AsyncExitStack() as stack:
            await undisturbed(conn)
            kept = {
                name: await stack.enter_async_context(explaining(url, options, "force_generic_plan"))
                for name, options in SESSIONS.items()
            }
            await note("empty", kept)
            await conn.execute(FILLED.encode())
            await note("kept", kept)
            for how in ("fresh", "analysed"):
                if how == "analysed":
                    await conn.execute("VACUUM ANALYZE")
                async with AsyncExitStack() as anew:
                    sessions = {
                        name: await anew.enter_async_context(explaining(url, options, "force_generic_plan"))
                        for name, options in SESSIONS.items()
                    }
                    await note(how, sessions)
        return plans

    with fresh_database(server_url, template) as url:
        yield asyncio.run(look(url))


@pytest.mark.parametrize("how", ["kept", "fresh", "analysed"])
@pytest.mark.parametrize("session", SESSIONS)
def test_d12_the_start_of_nodes_looks_at_its_batch(told: dict[str, list[Plan]], how: str, session: str) -> None:
    [plan] = [plan for plan in told[f"{how}, {session}"] if plan.name == STATEMENT]  # the others are of triggers
    assert plan.whole_scans == set()
    assert plan.indexes(NODES) == {f"{NODES}_task_id_idx"}
    seen = {table: plan.rows(table) for table in (NODES, "horsies_workflows", "horsies_tasks")}
    assert max(seen.values()) <= 4 * BATCH, seen  # each once by the index, and once to write
    assert plan.sorted <= BATCH and plan.top["Actual Rows"] == BATCH
    assert plan.buffers <= 150 * BATCH
