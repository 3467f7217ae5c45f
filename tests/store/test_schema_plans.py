"""Which index serves which statement (D-12): on a deep queue, on a table where nearly everything has ended, and on an
empty one. A session keeps the plan of a prepared statement until the next ANALYZE, also when the flood comes meanwhile;
that is why sessions that prepare these statements rule out reading the whole table.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.sql import load
from tests.architecture.source import prepared

ROWS = 20_000
ARGUMENTS = {
    "async_names": "'{}'",
    "budget": "10",
    "caps": "'{NULL,NULL}'",
    "charges": "'{1,1}'",
    "claims": "'{1,1}'",
    "cluster_cap": "NULL",
    "codes": "'{A,B}'",
    "counting": "TRUE",
    "delays": "'{1,1}'",
    "enrolled": "FALSE",
    "hard": "TRUE",
    "hostname": "'h'",
    "ids": "'{1,2}'",
    "include_running": "TRUE",
    "keys": "'{a,b}'",
    "lease": "'60 s'",
    "max_age": "'60 s'",
    "messages": "'{a,b}'",
    "most": "500",
    "names": "'{a,b}'",
    "outcomes": "'{FAILED,FAILED}'",
    "pids": "'{1,1}'",
    "queues": "'{default,other}'",
    "reasons": "'{a,b}'",
    "result": "'r'",
    "results": "'{a,b}'",
    "rows": """'[{"place":0,"id":"1","task_name":"t","idempotency_key":"a"}]'""",
    "senders": "'{a,b}'",
    "sync_budget": "10",
    "room": "10",
    "whole": "0",
    "concurrency": "1",
    "takes": "'{10,10}'",
    "task_names": "'{t,t}'",
    "vouched": "'{t,t}'",
    "worker_id": "'w'",
}
PKEY, PENDING, OWNER = "horsies_tasks_pkey", "horsies_tasks_pending_idx", "horsies_tasks_owner_idx"
SERVED_BY = {
    "tasks/cancel": {PKEY},
    "tasks/claim": {PENDING, OWNER, PKEY},
    "tasks/claim_expired": {OWNER, PKEY},
    "tasks/complete": {PKEY},
    "tasks/expire": {PKEY},
    "tasks/expire_waiting": {"horsies_tasks_deadline_idx", PKEY},
    "tasks/fail": {PKEY},
    "tasks/find_sent": {PKEY, "horsies_tasks_idempotency_idx"},
    "tasks/mark_finalizing": {PKEY},
    "tasks/renew": {PKEY},
    "tasks/requeue": {PKEY},
    "tasks/results": {PKEY},
    "tasks/retry": {PKEY},
    "tasks/start": {PKEY},
    "tasks/strays": {OWNER},
}
LOOKUPS = {
    "queue_name = 'default' AND status = 'PENDING' ORDER BY priority, enqueued_at, id LIMIT 10": PENDING,
    "claimed": OWNER,
    "status = 'PENDING' AND good_until < now()": "horsies_tasks_deadline_idx",
    "status = 'PENDING' AND next_retry_at < now()": "horsies_tasks_retry_idx",
    "error_code = 'TASK_EXPIRED'": "horsies_tasks_error_code_idx",
    "status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED') "
    "AND COALESCE(completed_at, failed_at, updated_at) < now() - interval '30 days'": "horsies_tasks_terminal_age_idx",
    "task_name = 't' AND idempotency_key = 'k'": "horsies_tasks_idempotency_idx",
}


async def scans(conn: AsyncConnection, statement: str) -> set[str]:
    """Indexes by which the plan reads horsies_tasks; ``Seq Scan`` if it reads it as a whole."""
    cursor = await conn.execute(f"EXPLAIN {statement}".encode())
    plan = "\n".join(row[0] for row in await cursor.fetchall())
    found = set(
        re.findall(r"(?:Index (?:Only )?Scan(?: Backward)? using|Bitmap Index Scan on) (horsies_tasks_\w+)", plan)
    )
    return found | set(re.findall(r"(Seq Scan) on horsies_tasks\b", plan))


async def plan_of(conn: AsyncConnection, name: str) -> set[str]:
    """The plan that a session keeps for a statement it has prepared."""
    text, names = prepared(load(name))
    await conn.execute("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off")
    await conn.execute(text.encode())
    try:
        return await scans(conn, f"EXECUTE checked ({', '.join(ARGUMENTS[argument] for argument in names)})")
    finally:
        await conn.execute("DEALLOCATE checked; RESET enable_seqscan")


async def fill(conn: AsyncConnection, *, ended: bool) -> None:
    """A deep queue; or one where all but one row in a hundred have ended."""
    await conn.execute("SET session_replication_role = replica")  # nobody is to be rung
    await conn.execute(
        "INSERT INTO horsies_tasks (id, task_name, priority, status, completed_at) "
        "SELECT n, 't', 1 + n %% 3, CASE WHEN %s AND n %% 100 > 0 THEN 'COMPLETED' ELSE 'PENDING' END, "
        "CASE WHEN %s AND n %% 100 > 0 THEN now() - n * interval '10 minutes' END "
        "FROM generate_series(1, %s) AS n",
        [ended, ended, ROWS],
    )
    await conn.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claim_seq) "
        "SELECT 'r' || n, 't', 'RUNNING', TRUE, 'w' || n %% 4, 1 FROM generate_series(1, %s) AS n",
        [100],
    )
    await conn.execute("VACUUM ANALYZE horsies_tasks")


@pytest.mark.parametrize("ended", [False, True], ids=["deep", "mostly finished"])
async def test_d12_a_full_table_is_read_by_its_indexes(db: AsyncConnection, ended: bool) -> None:
    await fill(db, ended=ended)
    assert {name: await plan_of(db, name) for name in SERVED_BY} == SERVED_BY
    for condition, index in LOOKUPS.items():
        assert await scans(db, f"SELECT id FROM horsies_tasks WHERE {condition}") == {index}, condition  # noqa: S608


@pytest.mark.parametrize("analysed", [False, True])
async def test_d12_a_plan_made_on_an_empty_table_holds_when_it_fills(db: AsyncConnection, analysed: bool) -> None:
    if analysed:
        await db.execute("VACUUM ANALYZE horsies_tasks")
    plans = {name: await plan_of(db, name) for name in SERVED_BY}
    assert [name for name, used in plans.items() if "Seq Scan" in used] == []
    assert [name for name, served in SERVED_BY.items() if PKEY in served and PKEY not in plans[name]] == []
    assert PENDING in plans["tasks/claim"]


BATCH = 50
FLOOD = 5_000
IN_FLIGHT = {
    "tasks/complete": "RUNNING",
    "tasks/expire": "CLAIMED",
    "tasks/fail": "RUNNING",
    "tasks/heartbeat": "RUNNING",
    "tasks/mark_finalizing": "RUNNING",
    "tasks/renew": "CLAIMED",
    "tasks/requeue": "CLAIMED",
    "tasks/retry": "RUNNING",
    "tasks/start": "CLAIMED",
}
ONE_FOR_EACH = {
    "charges": "1",
    "claims": "1",
    "codes": "A",
    "delays": "1",
    "messages": "m",
    "names": "p",
    "outcomes": "FAILED",
    "pids": "1",
    "reasons": "r",
    "results": "r",
    "senders": "s",
    "vouched": "t",
}


def rows_touched(node: dict[str, Any]) -> int:
    """How many rows of tasks a plan has looked at, those it threw away included."""
    own = node.get("Rows Removed by Join Filter", 0)
    if node.get("Relation Name") == "horsies_tasks" and node["Node Type"] != "ModifyTable":
        own += (
            node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        )
    return int(own * node["Actual Loops"]) + sum(rows_touched(below) for below in node.get("Plans", []))


@pytest.mark.parametrize("analysed", [False, True], ids=["fresh", "analysed when small"])
@pytest.mark.parametrize("name", IN_FLIGHT)
async def test_d12_the_cost_of_a_batch_does_not_grow_with_the_table(
    db: AsyncConnection, name: str, analysed: bool
) -> None:
    """Prepared and often used on a small table, then the flood comes: a batch still looks at its own rows only."""
    text, names = prepared(load(name))

    def execute(ids: list[str]) -> str:
        given = {one: "'{" + ",".join([value] * len(ids)) + "}'" for one, value in ONE_FOR_EACH.items()}
        given["ids"] = "'{" + ",".join(ids) + "}'"
        return f"EXECUTE checked ({', '.join({**ARGUMENTS, **given}[one] for one in names)})"

    async def arrive(prefix: str, count: int) -> None:
        await db.execute(
            "INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claimed_at, claim_seq, "
            "good_until) SELECT %s || n, 't', %s, TRUE, 'w', now(), 1, CASE WHEN %s THEN now() END "
            "FROM generate_series(1, %s) AS n",
            [prefix, IN_FLIGHT[name], name == "tasks/expire", count],
        )

    await db.execute("SET session_replication_role = replica; SET enable_seqscan = off")
    await db.execute("SET enable_bitmapscan = off; SET enable_nestloop = off")  # IN_BULK
    await arrive("small", 30)
    if analysed:
        await db.execute("ANALYZE horsies_tasks")
    await db.execute(text.encode())
    for number in range(1, 21):
        await db.execute(execute([f"small{number}"]).encode())
    await arrive("flood", FLOOD)
    for start in range(0, 3 * BATCH, BATCH):
        ids = [f"flood{number}" for number in range(start + 1, start + BATCH + 1)]
        cursor = await db.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {execute(ids)}".encode())
        row = await cursor.fetchone()
        assert row is not None
        assert rows_touched(row[0][0]["Plan"]) <= 5 * BATCH
