"""20 sweepers and reapers at once over 5,000 stale tasks: each recovered exactly once, and no deadlock."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import AsyncConnection

from tests.e2e.crowd import a_crowd
from tests.worker_support import Rows

pytestmark = pytest.mark.e2e

EACH = 1_250
POLICY = '{"retry_policy": {"max_retries": 1, "intervals": [60], "auto_retry_for": ["WORKER_CRASHED"]}}'
# Claimed; running without a policy and with one; and those of five workers that take part in worker recovery.
STALE = """
    INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claim_seq, claimed_at, started_at,
                               task_options, max_retries, recovery_enrolled)
    SELECT kind || n, 't', CASE kind WHEN 'claimed' THEN 'CLAIMED' ELSE 'RUNNING' END, TRUE, kind || n %% 5, 1, at,
           CASE WHEN kind <> 'claimed' THEN at END, CASE kind WHEN 'retried' THEN %(policy)s END, 1, kind = 'enrolled'
    FROM unnest(ARRAY['claimed', 'failed', 'retried', 'enrolled']) AS kind, generate_series(1, %(each)s) AS n,
         LATERAL (SELECT now() - interval '1 hour' + n * interval '1 ms') AS _(at);
"""
DEAD = """
    INSERT INTO horsies_workers (worker_id, last_heartbeat_at, sweeping)
    SELECT 'enrolled' || n, now() - interval '1 hour', TRUE FROM generate_series(0, 3) AS n  -- the fifth has no row
"""
TOUCHED = """
    CREATE TABLE touched (id text);
    CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO touched VALUES (NEW.id); RETURN NULL; END $$;
    CREATE TRIGGER touch AFTER UPDATE ON horsies_tasks FOR EACH ROW EXECUTE FUNCTION touch()
"""


async def test_r15_r67_twenty_at_once_recover_each_task_exactly_once(
    db: AsyncConnection[Any], database_url: str, rows: Rows
) -> None:
    await db.execute(STALE, {"policy": POLICY, "each": EACH})
    await db.execute(DEAD)
    await db.execute(TOUCHED)
    with a_crowd(database_url, 4, reapers=3, sweepers=2) as crowd:
        for process in crowd:
            _, said = process.communicate(timeout=90)
            assert process.returncode == 0, said
            # That tasks have failed is said as an error; nothing else may go wrong.
            errors = [line for line in said.splitlines() if "ERROR" in line or "Traceback" in line]
            expected = (":task failed: ", " failed in the same way")
            assert [line for line in errors if not any(words in line for words in expected)] == []
            assert "failed and will be retried" not in said, said
    found = await rows.all(
        "SELECT regexp_replace(id, '\\d', '', 'g') AS kind, status, retry_count, claim_seq, count(*)::int AS n"
        " FROM horsies_tasks GROUP BY 1, 2, 3, 4 ORDER BY 1"
    )
    assert [tuple(row.values()) for row in found] == [
        ("claimed", "PENDING", 0, 1, EACH),
        ("enrolled", "PENDING", 0, 1, EACH),
        ("failed", "FAILED", 0, 1, EACH),
        ("retried", "PENDING", 1, 1, EACH),
    ]
    assert await rows.all("SELECT id FROM touched GROUP BY id HAVING count(*) <> 1") == []
    assert await rows.all("SELECT count(*)::int AS n FROM touched") == [{"n": 4 * EACH}]
    recorded = await rows.all(
        "SELECT regexp_replace(task_id, '\\d', '', 'g') AS kind, attempt, outcome, will_retry, count(*)::int AS n"
        " FROM horsies_task_attempts GROUP BY 1, 2, 3, 4 ORDER BY 1"
    )
    assert [tuple(row.values()) for row in recorded] == [
        ("enrolled", 1, "WORKER_FAILURE", True, EACH),
        ("failed", 1, "WORKER_FAILURE", False, EACH),
        ("retried", 1, "WORKER_FAILURE", True, EACH),
    ]
    deadlocks = await rows.all("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert deadlocks == [{"deadlocks": 0}]
