"""Tables in the states in which plans are pinned (D-12), built with plain SQL in seconds.

Ids grow with time, as ours do, so that a walk along the primary key looks as tempting to the planner as it really is.
Nothing is analysed here: a fresh database has no statistics, and the tests look at it before and after. Every state has
the same tasks in flight; `ids` names some of them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection

DEEP = 200_000
BATCH = 200
IN_FLIGHT = 1_000  # in each group of them
SOWN = 300  # of each kind, where a table starts small
QUEUES = ["hog", *(f"q{n:02}" for n in range(99))]

FINISHED = """
    INSERT INTO horsies_tasks (id, task_name, status, enqueued_at, completed_at, result, claim_seq)
    SELECT 'a' || lpad(n::text, 35, '0'), 't', 'COMPLETED', at, at, 'r', 1
    FROM generate_series(1, %(rows)s) AS n, LATERAL (SELECT now() - interval '50 days' + n * interval '20 s') AS _(at)
"""
# One in a hundred is in one of the 99 small queues.
PENDING = """
    INSERT INTO horsies_tasks (id, task_name, queue_name, enqueued_at)
    SELECT 'b' || lpad(n::text, 35, '0'), 't',
           CASE WHEN n %% 100 > 0 THEN 'hog' ELSE 'q' || lpad((n / 100 %% 99)::text, 2, '0') END,
           now() - interval '1 hour' + n * interval '1 ms'
    FROM generate_series(1, %(rows)s) AS n
"""
OVERDUE = """
    INSERT INTO horsies_tasks (id, task_name, enqueued_at, good_until)
    SELECT 'b' || lpad(n::text, 35, '0'), 't', at, at + interval '1 min'
    FROM generate_series(1, %(rows)s) AS n, LATERAL (SELECT now() - interval '1 hour' + n * interval '1 ms') AS _(at)
"""
# Half of them wait for a retry.
FUTURE = """
    INSERT INTO horsies_tasks (id, task_name, priority, enqueued_at, next_retry_at)
    SELECT 'b' || lpad(n::text, 35, '0'), 't', 1 + n %% 10, at, CASE WHEN n %% 2 = 0 THEN at END
    FROM generate_series(1, %(rows)s) AS n, LATERAL (SELECT now() + interval '1 day' + n * interval '1 ms') AS _(at)
"""
# The tasks of a paused workflow, which pause has taken out of the line (F-50).
PAUSED = """
    INSERT INTO horsies_tasks (id, task_name, workflow_id, enqueued_at, is_held)
    SELECT 'b' || lpad(n::text, 35, '0'), 't', 'p1', now() - interval '1 hour' + n * interval '1 ms', TRUE
    FROM generate_series(1, %(rows)s) AS n
"""
# A thousand that can be claimed: behind all that or, by their priority, among it.
BEHIND = """
    INSERT INTO horsies_tasks (id, task_name, enqueued_at)
    SELECT 'c' || lpad(n::text, 35, '0'), 't', now() - interval '1 s' FROM generate_series(1, 1000) AS n
"""
AMONG = """
    INSERT INTO horsies_tasks (id, task_name, priority, enqueued_at)
    SELECT 'c' || lpad(n::text, 35, '0'), 't', 1 + n % 100, now() - interval '1 s' FROM generate_series(1, 1000) AS n
"""
# Each group is named by its letter: what they are, whose, since when, and how long past their deadline.
NOW, AN_HOUR = timedelta(0), timedelta(hours=1)
GROUPS: dict[str, tuple[str, str, timedelta, timedelta | None]] = {
    "d": ("CLAIMED", "me", NOW, None),
    "e": ("RUNNING", "me", NOW, None),
    "f": ("CLAIMED", "me", NOW, NOW),
    "g": ("CLAIMED", "dead", AN_HOUR, None),
    "h": ("RUNNING", "dead", AN_HOUR, None),
    "i": ("RUNNING", "alive", AN_HOUR, None),
}
FLYING = """
    INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claimed_at, started_at, good_until,
                               claim_expires_at, claim_seq, idempotency_key)
    SELECT %(letter)s::text || lpad(n::text, 35, '0'), 't', %(status)s::text, TRUE, %(owner)s, at,
           CASE %(status)s::text WHEN 'RUNNING' THEN at END, now() - %(late)s::interval, at + interval '1 min', 1,
           %(letter)s::text || n
    FROM generate_series(1, %(rows)s) AS n, LATERAL (SELECT now() - %(since)s::interval) AS _(at)
"""
# Open workflows, with a task waiting in many.
NODES = """
    INSERT INTO horsies_workflows (id, name, definition_key, open_nodes, status)
    SELECT 'o' || n, 'w', 'w', 1, 'RUNNING' FROM generate_series(1, 10000) AS n;
    INSERT INTO horsies_tasks (id, task_name, queue_name, workflow_id)
    SELECT 'j' || n, 't', 'nodes', 'o' || 2 * n FROM generate_series(1, 3000) AS n;
"""
# What retention finds: old and young of everything. The oldest tasks are those of the oldest workflows.
RECORDS = """
    INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, finished_at)
    SELECT id, 1, 'COMPLETED', FALSE, completed_at FROM horsies_tasks WHERE id < 'b' ORDER BY id LIMIT 50000;

    INSERT INTO horsies_heartbeats (task_id, sender_id, role, sent_at)
    SELECT 'a' || lpad(n::text, 35, '0'), 's', 'runner', now() - interval '3 days' + n * interval '1 s'
    FROM generate_series(1, 50000) AS n;
    INSERT INTO horsies_heartbeats (task_id, sender_id, role, sent_at)
    SELECT id, 's', 'runner', now() - b * interval '30 s'
    FROM horsies_tasks, generate_series(0, 9) AS b WHERE claimed AND claimed_by_worker_id = 'alive';

    INSERT INTO horsies_worker_states (worker_id, snapshot_at)
    SELECT 'w' || n % 20, now() - interval '10 days' + n * interval '30 s' FROM generate_series(1, 20000) AS n;
    INSERT INTO horsies_workers (worker_id, last_heartbeat_at, liveness_key, recovery)
    SELECT 'w' || n, now() - n * interval '5 min', n, '{"worker_recovery": {"heartbeat_interval": 30000}}'
    FROM generate_series(0, 500) AS n;
    INSERT INTO horsies_workers (worker_id, sweeping) VALUES ('me', TRUE), ('alive', TRUE);

    INSERT INTO horsies_rollup (span, start_at, queue_name, task_name, error_code)
    SELECT s, date_trunc('hour', now()) - n * s * interval '1 s', 'q' || g, 't' || g, ''
    FROM generate_series(1, 1000) AS n, unnest(ARRAY[60, 600, 3600]) AS s, generate_series(1, 5) AS g;
    INSERT INTO horsies_audit (at, actor, action, target_kind, target_ids)
    SELECT now() - interval '1 year' + n * interval '10 min', 'a', 'b', 'task', ARRAY[n::text]
    FROM generate_series(1, 20000) AS n;

    INSERT INTO horsies_workflows (id, name, definition_key, open_nodes, status, completed_at)
    SELECT n, 'w', 'w', 1, 'COMPLETED', now() - interval '50 days' + n * interval '2 min'
    FROM generate_series(1, 10000) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name)
    SELECT n, i, i, 'TASK', 't' FROM generate_series(1, 10000) AS n, generate_series(1, 4) AS i;
    UPDATE horsies_tasks SET workflow_id = substr(id, 32)::int::text WHERE id < 'a' || lpad('2000', 35, '0');
"""


def ids(letter: str) -> list[str]:
    """The ids of a batch of a group, not side by side."""
    return [f"{letter}{n:035}" for n in range(1, IN_FLIGHT + 1, IN_FLIGHT // BATCH)]


async def fill(conn: AsyncConnection[Any], *bodies: str, rows: int = DEEP) -> None:
    """Write the tasks in flight, and what else belongs to a state."""
    await conn.execute("SET session_replication_role = replica")  # nobody is to be rung
    for letter, (status, owner, since, late) in GROUPS.items():
        known = {"letter": letter, "status": status, "owner": owner, "since": since, "late": late, "rows": IN_FLIGHT}
        await conn.execute(FLYING, known)
    for body in bodies:
        await conn.execute(body.encode(), {"rows": rows} if "%(rows)s" in body else None)


async def sow(conn: AsyncConnection[Any]) -> None:
    """A few of each kind, for plans that are made while the table is small."""
    await conn.execute(
        """
        INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, good_until, next_retry_at,
                                   error_code, completed_at, idempotency_key)
        SELECT 'z' || lpad(n::text, 35, '0'), 't',
               CASE n %% 3 WHEN 0 THEN 'PENDING' WHEN 1 THEN 'COMPLETED' ELSE 'RUNNING' END, n %% 3 = 2, 'z',
               '9999-01-01', '9999-01-01', 'z', now(), n
        FROM generate_series(1, 3 * %s) AS n
    """,
        [SOWN],
    )
