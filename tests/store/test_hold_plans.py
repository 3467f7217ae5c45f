"""What it costs to take the waiting tasks of a wide workflow out of the line of the claims, and to put them back: each
part begins where the one before it has ended, so the last costs what the first does (F-50, F-52).

All parts run in one transaction here, so nothing that they leave behind in tables and indexes is cleaned up in between,
as beside a long transaction of somebody else.
"""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.db.connections import BY_INDEX
from horsies.core.workflows import control
from tests.store.plan_reading import explaining
from tests.store.test_plans import undisturbed
from tests.store.test_workflow_plans import Lent

pytestmark = pytest.mark.usefixtures("superuser")

PART = 200
PARTS = 20
_OTHERS = """
    INSERT INTO horsies_tasks (id, task_name) SELECT 'o' || n, 't' FROM generate_series(1, 20000) AS n;
"""
# Two of three nodes have a task that waits; and a family, of which each workflow has one.
_WIDE = """
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes) VALUES ('wide', 'w', 'w', 'PAUSED', 1);
    INSERT INTO horsies_tasks (id, task_name, status, workflow_id)
    SELECT 't' || lpad(n::text, 7, '0'), 't', CASE n % 3 WHEN 0 THEN 'RUNNING' ELSE 'PENDING' END, 'wide'
    FROM generate_series(1, 4000) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status, task_id)
    SELECT 'wide', n, n, 'TASK', 't', CASE n % 3 WHEN 0 THEN 'RUNNING' ELSE 'ENQUEUED' END, 't' || lpad(n::text, 7, '0')
    FROM generate_series(1, 4000) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status)
    SELECT 'wide', n, n, 'TASK', 't', CASE WHEN n > 8000 THEN 'COMPLETED' ELSE 'PENDING' END
    FROM generate_series(4001, 12000) AS n
"""
_FAMILY = """
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes)
    SELECT 'f' || lpad(n::text, 7, '0'), 'w', 'w', 'PAUSED', 1 FROM generate_series(1, 4000) AS n;
    INSERT INTO horsies_tasks (id, task_name, workflow_id)
    SELECT 't' || lpad(n::text, 7, '0'), 't', 'f' || lpad(n::text, 7, '0') FROM generate_series(1, 4000) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status, task_id)
    SELECT 'f' || lpad(n::text, 7, '0'), 0, 0, 'TASK', 't', 'ENQUEUED', 't' || lpad(n::text, 7, '0')
    FROM generate_series(1, 4000) AS n
"""
WIDE, FAMILY = ["wide"], [f"f{n:07}" for n in range(1, 4001)]


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("is_analyzed", [False, True])
@pytest.mark.parametrize(
    ("rows", "ids", "waiting"), [(_WIDE, WIDE, 2667), (_FAMILY, FAMILY, 4000)], ids=["wide", "family"]
)
async def test_f50_f52_each_part_of_a_pause_and_of_a_resume_costs_the_same(
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    rows: str,
    ids: list[str],
    waiting: int,
    is_analyzed: bool,
    mode: str,
) -> None:
    monkeypatch.setattr(control, "AT_ONCE", PART)
    monkeypatch.setattr(control, "FLOWS_AT_ONCE", PART)
    async with await AsyncConnection.connect(database_url, autocommit=True) as conn:
        await undisturbed(conn)
        await conn.execute("SET session_replication_role = replica")  # nobody is to be rung
        await conn.execute((_OTHERS + rows).encode())
        if is_analyzed:
            await conn.execute("VACUUM ANALYZE")
    marked = []

    async def pause_and_resume(conn: AsyncConnection[Any]) -> None:
        await control.hold_or_release(Lent(conn), ids)
        marked.append(await held(conn))
        await conn.execute("UPDATE horsies_workflows SET status = 'RUNNING'")
        await control.hold_or_release(Lent(conn), ids)
        marked.append(await held(conn))

    async with explaining(database_url, BY_INDEX, mode) as session:
        told = await session.plans(pause_and_resume)
    assert marked == [waiting, 0]
    assert max(plan.rows("horsies_workflows") for plan in told if plan.name == "workflows/lock") <= PART
    for name, by in (("workflows/hold", set()), ("workflows/release", {"horsies_tasks_held_idx"})):
        plans = [plan for plan in told if plan.name == name]
        pages = [plan.buffers for plan in plans]
        assert len([count for count in pages if count > PART]) <= PARTS + 1, f"{name}: {pages}"
        assert max(pages) <= 1.5 * pages[0], f"{name}: {pages}"
        assert {index for plan in plans for index in plan.indexes("horsies_tasks")} == {"horsies_tasks_pkey"} | by
        used = {index for plan in plans for index in plan.indexes("horsies_workflow_tasks")}
        assert used <= {"horsies_workflow_tasks_in_flight_idx"}, used


async def held(conn: AsyncConnection[Any]) -> int:
    cursor = await conn.execute("SELECT count(*) FROM horsies_tasks WHERE is_held")
    [(found,)] = await cursor.fetchall()
    return int(found)
