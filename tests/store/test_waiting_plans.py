"""The look of `horsies check --live` reads the first waiting tasks of each queue and nothing more, however many wait or
have ended, before and after ANALYZE (M-20).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from psycopg import AsyncConnection

from horsies.core.db.connections import BY_INDEX
from horsies.core.store import task_reads
from tests.conftest import fresh_database
from tests.factories import given_task
from tests.store.plan_reading import Plan, explaining
from tests.store.test_plans import undisturbed

pytestmark = pytest.mark.usefixtures("superuser")

MOST, SKIPPED = 100, 900
# Much that waits, in three queues and under two names, and much that is over.
FILLED = """
    SET session_replication_role = replica;
    INSERT INTO horsies_tasks (id, task_name, queue_name)
    SELECT 'w' || n, 't' || n % 2, 'q' || n % 3 FROM generate_series(1, 30000) AS n;
    INSERT INTO horsies_tasks (id, task_name, queue_name, status, completed_at)
    SELECT 'e' || n, 't', 'q' || n % 3, 'COMPLETED', now() FROM generate_series(1, 30000) AS n;
"""


@pytest.fixture(scope="module")
def told(server_url: str, template: str) -> Iterator[list[Plan]]:
    """The plans without statistics and with them."""

    async def look(url: str) -> list[Plan]:
        plans: list[Plan] = []
        async with await AsyncConnection.connect(url, autocommit=True) as conn:
            await undisturbed(conn)
            await conn.execute(FILLED.encode())
            for is_analysed in (False, True):
                if is_analysed:
                    await conn.execute("VACUUM ANALYZE")
                async with explaining(url, BY_INDEX, "auto") as session:
                    plans += await session.plans(lambda conn: task_reads.waiting(conn, "q1", skip=SKIPPED, most=MOST))
        return plans

    with fresh_database(server_url, template) as url:
        yield asyncio.run(look(url))


def test_m20_d12_the_look_is_bounded_and_by_the_index_of_claims(told: list[Plan]) -> None:
    assert [plan.name for plan in told] == ["checks/waiting"] * 2
    for plan in told:
        assert plan.whole_scans == set()
        assert plan.indexes("horsies_tasks") == {"horsies_tasks_pending_idx"}
        assert abs(plan.rows("horsies_tasks") - SKIPPED - MOST) <= plan.blur("horsies_tasks")
        assert plan.top["Actual Rows"] == MOST
        assert plan.sorted == 0


async def test_m20_a_page_of_a_queue_in_the_order_of_claims(frozen: AsyncConnection) -> None:
    for number, (queue, priority) in enumerate([("a", 2), ("a", 1), ("a", 1), ("a", 2), ("b", 1)]):
        due = f"2026-01-0{number + 1}"
        await given_task(frozen, id=f"{number}", queue_name=queue, priority=priority, enqueued_at=due, args="[1]")
    found = await task_reads.waiting(frozen, "a", skip=0, most=3)
    assert [(task.task_id, task.args) for task in found] == [("1", "[1]"), ("2", "[1]"), ("0", "[1]")]
    assert [task.task_id for task in await task_reads.waiting(frozen, "a", skip=3, most=3)] == ["3"]
