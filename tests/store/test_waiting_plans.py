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
from horsies.core.store.task_reads import WaitingSample
from tests.conftest import fresh_database
from tests.factories import given_task
from tests.store.plan_reading import Plan, explaining
from tests.store.test_plans import undisturbed

pytestmark = pytest.mark.usefixtures("superuser")

MOST = 200
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
                    plans += await session.plans(
                        lambda conn: task_reads.waiting(conn, ["q0", "q1", "none"], most=MOST, sample=5)
                    )
        return plans

    with fresh_database(server_url, template) as url:
        yield asyncio.run(look(url))


def test_m20_d12_the_look_is_bounded_and_by_the_index_of_claims(told: list[Plan]) -> None:
    assert [plan.name for plan in told] == ["checks/waiting"] * 2
    for plan in told:
        assert plan.whole_scans == set()
        assert plan.indexes("horsies_tasks") == {"horsies_tasks_pending_idx"}
        assert abs(plan.rows("horsies_tasks") - 2 * MOST) <= plan.blur("horsies_tasks")
        assert plan.top["Actual Rows"] == 4
        assert plan.sorted <= 2 * MOST


async def test_m20_the_first_of_each_queue_by_name_in_the_order_of_claims(frozen: AsyncConnection) -> None:
    for number, (queue, name, priority) in enumerate(
        [("a", "t", 2), ("a", "t", 1), ("a", "u", 1), ("a", "t", 2), ("b", "t", 1), ("c", "t", 1)]
    ):
        await given_task(
            frozen,
            id=f"{number}",
            queue_name=queue,
            task_name=name,
            priority=priority,
            enqueued_at=f"2026-01-0{number + 1}",
        )
    assert await task_reads.waiting(frozen, ["a", "b"], most=10, sample=2) == [
        WaitingSample("a", "t", 3, ["1", "0"]),
        WaitingSample("a", "u", 1, ["2"]),
        WaitingSample("b", "t", 1, ["4"]),
    ]
    assert await task_reads.waiting(frozen, ["a"], most=2, sample=2) == [
        WaitingSample("a", "t", 1, ["1"]),
        WaitingSample("a", "u", 1, ["2"]),
    ]
