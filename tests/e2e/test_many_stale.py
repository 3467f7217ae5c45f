"""Very many stale tasks: recovered in bounded steps while claims go on (R-17)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from datetime import timedelta
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.db.connections import BY_INDEX
from horsies.core.store import tasks
from horsies.core.store.tasks import Claimant, ClaimOrder
from tests.audit import audit, transactions
from tests.e2e.crowd import a_crowd
from tests.recovery_support import hasty
from tests.support import eventually
from tests.worker_support import Rows, running_worker

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("superuser")]

MANY, VERY_MANY, PROBES = 2_400, 100_000, 400
# Half of them only claimed. With a heartbeat each, as it would be.
STALE = """
    INSERT INTO horsies_tasks (id, task_name, kwargs, status, claimed, claimed_by_worker_id, claim_seq, claimed_at,
                               started_at)
    SELECT 'stale' || n, 'noop', '{}', CASE n %% 2 WHEN 0 THEN 'CLAIMED' ELSE 'RUNNING' END, TRUE, 'dead', 1, at,
           CASE n %% 2 WHEN 1 THEN at END
    FROM generate_series(1, %(count)s) AS n, LATERAL (SELECT now() - interval '1 hour' + n * interval '1 ms') AS _(at)
"""
BEATS = """
    INSERT INTO horsies_heartbeats (task_id, sender_id, role, sent_at)
    SELECT id, 's', CASE status WHEN 'RUNNING' THEN 'runner' ELSE 'claimer' END, claimed_at
    FROM horsies_tasks WHERE claimed
"""


async def given_stale(db: AsyncConnection[Any], count: int) -> None:
    await db.execute("SET session_replication_role = replica")  # nobody is to be rung
    await db.execute(STALE, {"count": count})
    await db.execute(BEATS)
    await db.execute("SET session_replication_role = origin")


async def test_r17_thousands_are_recovered_in_bounded_steps_while_a_worker_claims(
    db: AsyncConnection[Any], basic: Any, rows: Rows
) -> None:
    await given_stale(db, MANY)
    # Not what the worker claims after that, and may hand back again because other tasks run long: that is a new claim.
    recovered = "id LIKE 'stale%' AND status IN ('PENDING', 'FAILED') AND claim_seq = 1"
    await audit(db, condition=recovered, horsies_tasks="UPDATE")
    basic.app.config = basic.app.config.model_copy(update={"recovery": hasty(check_interval_ms=1_000)})
    async with running_worker(basic.app):
        handles = [(await basic.add.send_async(n, n)).unwrap() for n in range(20)]
        assert [(await handle.get_async(timeout_ms=20_000)).ok for handle in handles] == [2 * n for n in range(20)]

        async def is_over() -> bool:
            left = await rows.all("SELECT 1 FROM horsies_tasks WHERE status NOT IN ('COMPLETED', 'FAILED') LIMIT 1")
            return left == []

        await eventually(is_over, 30, every=0.1)
    steps = await transactions(db)
    assert sum(steps) == MANY
    assert max(steps) <= 500
    found = await rows.all("SELECT status, count(*)::int AS n FROM horsies_tasks GROUP BY 1 ORDER BY 1")
    assert found == [{"status": "COMPLETED", "n": MANY // 2 + 20}, {"status": "FAILED", "n": MANY // 2}]
    attempts = await rows.all("SELECT outcome, count(*)::int AS n FROM horsies_task_attempts GROUP BY 1 ORDER BY 1")
    assert attempts == [{"outcome": "COMPLETED", "n": MANY // 2 + 20}, {"outcome": "WORKER_FAILURE", "n": MANY // 2}]


@pytest.mark.slow("100,000 stale tasks")
@pytest.mark.timeout(900)
async def test_r17_claims_take_at_most_twice_as_long_while_100000_are_recovered(
    db: AsyncConnection[Any], database_url: str, rows: Rows
) -> None:
    await given_stale(db, VERY_MANY)
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, priority)"
        " SELECT 'probe' || n, 'noop', 1 FROM generate_series(1, 200000) AS n"
    )
    await db.execute("VACUUM ANALYZE")
    await audit(db, condition="id LIKE 'stale%'", horsies_tasks="UPDATE")
    async with await AsyncConnection.connect(database_url, autocommit=True, options=BY_INDEX) as conn:
        await claims(conn, lambda taken: taken < PROBES)  # warm
        with a_crowd(database_url, 1, reapers=1, sweepers=0) as [recovering]:
            began = perf_counter()
            over = asyncio.create_task(asyncio.to_thread(recovering.communicate))  # which reads what it says
            alone, beside = list[float](), list[float]()
            while not over.done():  # in turns, so that whatever else the machine does slows both
                beside += await claims(conn, lambda taken: taken < 50 and not over.done())
                recovering.send_signal(signal.SIGSTOP)
                alone += await claims(conn, lambda taken: taken < 50)
                recovering.send_signal(signal.SIGCONT)
            took = perf_counter() - began
            await over
    steps = await transactions(db)
    print(
        f"\n{sum(steps)} recovered in {len(steps)} transactions, {took:.1f} s; {len(beside)} claims beside it, median"
        f" {1e3 * median(beside):.2f} ms (alone {1e3 * median(alone):.2f}), p95 {1e3 * p95(beside):.2f} ms"
        f" (alone {1e3 * p95(alone):.2f})"
    )
    assert (sum(steps), max(steps)) == (VERY_MANY, 500)
    assert median(beside) <= 2 * median(alone)


async def claims(conn: AsyncConnection[Any], is_going_on: Callable[[int], bool]) -> list[float]:
    """How long each claim takes; at the pace of a busy worker."""
    me = Claimant("me", timedelta(minutes=10), enrolled=False)
    order = ClaimOrder(["default"], [1], [None], 1, 1, None, True, [])
    took: list[float] = []
    while is_going_on(len(took)):
        began = perf_counter()
        taken = await tasks.claim(conn, me, order)
        took.append(perf_counter() - began)
        assert taken
        # Not in flight any more: the reapers wait for the end of that.
        done = "UPDATE horsies_tasks SET status = 'COMPLETED', claimed = FALSE WHERE id = %s"
        await conn.execute(done, [taken[0].id])
        await asyncio.sleep(0.005)
    return took


def p95(values: list[float]) -> float:
    return quantiles(values, n=20)[-1]
