"""Twenty who sweep and reap at the same moment over thousands of tasks: each task is recovered once, and there is no
circle of those who wait for each other.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from horsies import PostgresConfig, RecoveryConfig, WorkerRecoveryConfig
from horsies.core.db.connections import BY_INDEX, make_pool
from horsies.core.db.pool import Pool
from horsies.core.recovery.hooks import NoHooks
from horsies.core.recovery.reaper import Reaper
from horsies.core.recovery.sweep import sweep
from tests.conftest import SERVER_VARIABLE
from tests.given_server import needs_own_server
from tests.worker_support import Rows

# `test_recovery_crowd` is the one of every run, in several processes.
pytestmark = [pytest.mark.e2e, pytest.mark.slow("twenty processes over 5,000 tasks"), needs_own_server]

WORKERS = 20
TASKS = 5_000
# Half of them are enrolled, for the sweepers; half of each have started; ids are in no order.
STALE = """
    INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claim_seq, claimed_at, started_at,
                               recovery_enrolled, worker_pid)
    SELECT md5(n::text), 't', CASE WHEN n %% 4 < 2 THEN 'RUNNING' ELSE 'CLAIMED' END, TRUE, 'dead ' || n %% 30, 1,
           '2020-01-01', CASE WHEN n %% 4 < 2 THEN '2020-01-01'::timestamptz END, n %% 2 = 0, 1
    FROM generate_series(1, %s) AS n RETURNING id
"""
# Some of the enrolled are orphans.
REGISTERED = """
    INSERT INTO horsies_workers (worker_id, sweeping, last_heartbeat_at)
    SELECT 'dead ' || n, n %% 2 = 0, '2020-01-01' FROM generate_series(0, %s) AS n RETURNING worker_id
"""


class Always:
    def may_judge(self) -> bool:
        return True

    async def may_still_judge(self, server_time: object) -> bool:
        return True


@asynccontextmanager
async def pools(url: str) -> AsyncIterator[list[Pool]]:
    """A pool for each, as each has in its own process."""
    async with AsyncExitStack() as stack:
        made = []
        for n in range(WORKERS):
            name = f"sweeper {n}"
            pool = make_pool(PostgresConfig(database_url=url), min_size=1, max_size=2, name=name, options=BY_INDEX)
            stack.push_async_callback(pool.close)
            made.append(pool)
        yield made


async def backends(pools: list[Pool]) -> set[int]:
    found = set()
    for pool in pools:
        async with pool.connection() as conn:
            found.add(conn.pgconn.backend_pid)
    return found


def server_log() -> Path:
    return Path(os.environ[SERVER_VARIABLE], "server.log")


def deadlocks(of: set[int], since: int) -> list[str]:
    """What the server's log says about deadlocks of these sessions."""
    with server_log().open("rb") as file:
        file.seek(since)
        text = file.read().decode(errors="replace")
    told = [(re.search(r"\[(\d+)\]", line), line) for line in text.splitlines() if "deadlock" in line]
    return [line for pid, line in told if pid is not None and int(pid[1]) in of]


async def test_r15_r55_r67_twenty_sweepers_and_reapers_recover_each_task_once(database_url: str, rows: Rows) -> None:
    await rows.all(STALE, TASKS)
    await rows.all(REGISTERED, 27)
    log_size = server_log().stat().st_size
    config, policy = WorkerRecoveryConfig(enabled=True), RecoveryConfig()
    swept: list[int] = []

    async def sweeper(pool: Pool, me: str) -> None:
        while await in_flight(pool):
            swept.append((await sweep(pool, config, policy, NoHooks(), me=me)).recovered_count)

    async def reaper(pool: Pool, me: str) -> None:
        passes = dict(Reaper(pool, policy, config, NoHooks(), me, Always()).passes)
        while await in_flight(pool):
            for name in ("stale claims", "stale runs", "abandoned workers"):
                await passes[name]()  # raises what a tick would only log

    async def in_flight(pool: Pool) -> bool:
        async with pool.connection() as conn:
            return (await conn.execute("SELECT 1 FROM horsies_tasks WHERE claimed LIMIT 1")).rowcount > 0

    async with pools(database_url) as made:
        pids = await backends(made)
        async with asyncio.timeout(60):
            everybody = [(sweeper if n % 2 else reaper)(pool, f"me {n}") for n, pool in enumerate(made)]
            await asyncio.gather(*everybody)
        pids |= await backends(made)

    found: list[dict[str, Any]] = await rows.all(
        "SELECT t.claim_seq, t.status, t.retry_count,"
        " (SELECT array_agg(a.outcome || a.will_retry ORDER BY a.attempt) FROM horsies_task_attempts a"
        "  WHERE a.task_id = t.id) AS attempts, count(*) AS tasks"
        " FROM horsies_tasks t GROUP BY 1, 2, 3, 4"
    )
    kinds = {(row["status"], str(row["attempts"])): 0 for row in found}
    for row in found:
        assert (row["claim_seq"], row["retry_count"]) == (1, 0)
        kinds[row["status"], str(row["attempts"])] += row["tasks"]
    # The enrolled runs wait for another try, the others had no policy and have failed; claims just go back.
    assert kinds == {
        ("PENDING", "['WORKER_FAILUREtrue']"): TASKS // 4,
        ("FAILED", "['WORKER_FAILUREfalse']"): TASKS // 4,
        ("PENDING", "None"): TASKS // 2,
    }
    assert sum(swept) <= TASKS // 2  # the reapers sweep those that nobody swept
    assert await rows.all("SELECT worker_id FROM horsies_workers WHERE sweeping") == []
    assert deadlocks(pids, log_size) == []
    assert (await rows.all("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))[0] == {
        "deadlocks": 0
    }
