"""Tables full of workflows, for the plans of the statements about them; built with plain SQL in seconds.

Many small ones that run, many that have ended, one large one, parents whose child has ended, and a few of each kind
that somebody pauses, resumes, cancels, retries or finds past its deadline. The tasks of the first have ended, untold.
"""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

BATCH = 200
ENDED = 1_000  # tasks of small workflows and of the large one that have ended
LITTLE, MUCH = 250, 10_000

# n goes from `low` to `high`; everything is named by its number.
_SMALL = """
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes)
    SELECT 'o' || n, 'w', 'w', 'RUNNING', 4 FROM generate_series(%(low)s::int, %(high)s::int) AS n;
    INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claim_seq, workflow_id, result,
                               completed_at)
    SELECT 't' || n, 't', CASE WHEN n <= 1000 THEN 'COMPLETED' ELSE 'CLAIMED' END, n > 1000, 'me', 1, 'o' || n,
           '{"ok":1}', CASE WHEN n <= 1000 THEN now() END
    FROM generate_series(%(low)s::int, %(high)s::int) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, queue_name, priority,
                                        status, task_id, dependencies, dependents, deps_total)
    SELECT 'o' || n, i, i, 'TASK', 't', 'default', 100, CASE i WHEN 0 THEN 'ENQUEUED' ELSE 'PENDING' END,
           CASE i WHEN 0 THEN 't' || n END, d.before, d.after, cardinality(d.before)
    FROM generate_series(%(low)s::int, %(high)s::int) AS n CROSS JOIN (VALUES
        (0, '{}'::int[], '{1,2}'::int[]), (1, '{0}', '{3}'), (2, '{0}', '{3}'), (3, '{1,2}', '{}')
    ) AS d(i, before, after);
"""
_ENDED = """
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes, completed_at)
    SELECT 'e' || n, 'w', 'w', 'COMPLETED', 0, now() FROM generate_series(%(low)s::int, %(high)s::int) AS n;
    INSERT INTO horsies_tasks (id, task_name, status, workflow_id, result, completed_at)
    SELECT 'd' || n, 't', 'COMPLETED', 'e' || n, '{"ok":1}', now()
    FROM generate_series(%(low)s::int, %(high)s::int) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status, task_id,
                                        completed_at)
    SELECT 'e' || n, i, i, 'TASK', 't', 'COMPLETED', CASE i WHEN 0 THEN 'd' || n END, now()
    FROM generate_series(%(low)s::int, %(high)s::int) AS n, generate_series(0, 1) AS i;
"""
# Every second node of the large one runs; they all lead to one join.
_LARGE = """
    INSERT INTO horsies_tasks (id, task_name, status, workflow_id, result, completed_at)
    SELECT 'b' || n, 't', CASE WHEN n <= 1000 THEN 'COMPLETED' ELSE 'RUNNING' END, 'large', '{"ok":1}', now()
    FROM generate_series(%(low)s::int, %(high)s::int) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, queue_name, priority,
                                        status, task_id, dependents)
    SELECT 'large', n, n, 'TASK', 't', 'default', 100, 'RUNNING', 'b' || n, '{0}'
    FROM generate_series(%(low)s::int, %(high)s::int) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status)
    SELECT 'large', 1000000 + n, 1000000 + n, 'TASK', 't', 'PENDING'
    FROM generate_series(%(low)s::int, %(high)s::int) AS n;
"""
_FAMILIES = """
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes, root_workflow_id)
    SELECT 'p' || n, 'w', 'w', 'RUNNING', 2, 'p' || n FROM generate_series(%(low)s::int, %(high)s::int) AS n;
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes, result, completed_at,
                                   parent_workflow_id, parent_task_index, root_workflow_id, depth)
    SELECT 'c' || n, 'w', 'w', CASE WHEN n <= 1000 THEN 'COMPLETED' ELSE 'RUNNING' END, 0, '{"ok":1}',
           CASE WHEN n <= 1000 THEN now() END, 'p' || n, 0, 'p' || n, 1
    FROM generate_series(%(low)s::int, %(high)s::int) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, queue_name, priority,
                                        status, sub_workflow_id, dependencies, dependents, deps_total)
    SELECT 'p' || n, i, i, CASE i WHEN 0 THEN 'SUBWORKFLOW' ELSE 'TASK' END, 't', 'default', 100,
           CASE i WHEN 0 THEN 'RUNNING' ELSE 'PENDING' END, CASE i WHEN 0 THEN 'c' || n END,
           CASE i WHEN 0 THEN '{}' ELSE '{0}' END::int[], CASE i WHEN 0 THEN '{1}' ELSE '{}' END::int[], i
    FROM generate_series(%(low)s::int, %(high)s::int) AS n, generate_series(0, 1) AS i;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status)
    SELECT 'c' || n, 0, 0, 'TASK', 't', 'COMPLETED' FROM generate_series(%(low)s::int, %(high)s::int) AS n;
"""
_FEW = """
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes)
    VALUES ('large', 'w', 'w', 'RUNNING', 1000000),
           ('paused', 'w', 'w', 'PAUSED', 2), ('failed', 'w', 'w', 'FAILED', 0);
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes, good_until)
    SELECT 'late' || n, 'w', 'w', 'RUNNING', 1, now() - interval '1 min' FROM generate_series(1, 5) AS n;
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes)
    VALUES ('over', 'w', 'w', 'RUNNING', 0);
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, queue_name, priority,
                                        status)
    SELECT 'late' || n, 0, 0, 'TASK', 't', 'default', 100, 'PENDING' FROM generate_series(1, 5) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, queue_name, priority,
                                        status, dependencies, dependents, deps_total, deps_failed)
    VALUES ('large', 0, 'join', 'TASK', 't', 'default', 100, 'PENDING', '{}', '{}', 1000000, 0),
           ('paused', 0, 'a', 'TASK', 't', 'default', 100, 'READY', '{}', '{1}', 0, 0),
           ('paused', 1, 'b', 'TASK', 't', 'default', 100, 'PENDING', '{0}', '{}', 1, 0),
           ('failed', 0, 'a', 'TASK', 't', 'default', 100, 'FAILED', '{}', '{1}', 0, 0),
           ('failed', 1, 'b', 'TASK', 't', 'default', 100, 'SKIPPED', '{0}', '{}', 1, 1);
"""


async def plant(conn: AsyncConnection[Any]) -> None:
    """A little of everything."""
    await conn.execute("SET session_replication_role = replica")  # nobody is to be rung
    await conn.execute(_FEW)
    await _fill(conn, 1, LITTLE)


async def grow(conn: AsyncConnection[Any]) -> None:
    """Much more of it."""
    await _fill(conn, LITTLE + 1, MUCH)


async def _fill(conn: AsyncConnection[Any], low: int, high: int) -> None:
    for body in (_SMALL, _ENDED, _LARGE, _FAMILIES):
        for statement in body.split(";\n"):
            if statement.strip():
                await conn.execute(statement.encode(), {"low": low, "high": high}, prepare=False)


def names(letter: str, first: int = 1) -> list[str]:
    return [f"{letter}{n}" for n in range(first, first + BATCH)]
