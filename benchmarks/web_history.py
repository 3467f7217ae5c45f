"""A database with a past: what a dashboard finds after weeks of use. `rows` tasks that have ended, failed, wait or are
for later, of many names and queues; workflows that have run and one that is large; statistics of a week by the minute,
snapshots of workers, and a long record of what people did.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks import workflows
from benchmarks.processes import until, worker
from benchmarks.server import FAILED, LATER, Server

NAMES, QUEUES, CODES, PEOPLE = 20, 10, 12, 5
_NAMED = {"task_name": f"'task-' || nth %% {NAMES}", "queue_name": f"'queue-' || nth %% {QUEUES}"}
DIAMONDS = 2_000
LARGE = 1_000
MINUTES = 7 * 24 * 60
SNAPSHOTS = 7 * 24 * 120
ENTRIES = 100_000
_ROLLUP = f"""
    INSERT INTO horsies_rollup (span, start_at, queue_name, task_name, error_code, completed, failed, wait_seconds,
                                wait_counts, run_seconds, run_counts, example_id)
    SELECT span, date_bin(make_interval(secs => span), now(), '2000-01-01Z') - step * make_interval(secs => span),
           'queue-' || nth %% {QUEUES}, 'task-' || nth, code, CASE code WHEN '' THEN span ELSE 0 END,
           CASE code WHEN '' THEN 0 ELSE span / 60 END, span * 0.01, array_fill(span, ARRAY[20]), span * 0.1,
           array_fill(span, ARRAY[30]), CASE code WHEN '' THEN NULL ELSE %(example)s::text END
    FROM (VALUES (60), (600), (3600)) AS spans(span), generate_series(0, %(minutes)s * 60 / span) AS step,
         generate_series(0, {NAMES - 1}) AS nth, (VALUES (''), ('CODE_1')) AS codes(code)
    ON CONFLICT DO NOTHING
"""  # noqa: S608
_GAUGES = f"""
    INSERT INTO horsies_rollup (span, start_at, queue_name, task_name, error_code, waiting, oldest_due_seconds, running)
    SELECT span, date_bin(make_interval(secs => span), now(), '2000-01-01Z') - step * make_interval(secs => span),
           name, '', '', 100 + step %% 50, step %% 30, step %% 8
    FROM (VALUES (60), (600), (3600)) AS spans(span), generate_series(0, %(minutes)s * 60 / span) AS step,
         (SELECT 'queue-' || n FROM generate_series(0, {QUEUES - 1}) AS n UNION ALL SELECT '*') AS queues(name)
    ON CONFLICT DO NOTHING
"""  # noqa: S608
_SNAPSHOTS = """
    INSERT INTO horsies_worker_states (worker_id, snapshot_at, tasks_running, tasks_claimed, cpu_percent,
                                       memory_usage_mb, memory_percent, children_memory_mb)
    SELECT coalesce(w.worker_id, 'gone-' || nth), now() - step * interval '30 seconds', step %% 5, 1, step %% 60,
           90, 5, 60
    FROM generate_series(1, %(count)s) AS step, generate_series(0, 4) AS nth
    LEFT JOIN horsies_workers w ON nth = 0
"""
_AUDIT = f"""
    INSERT INTO horsies_audit (at, ended_at, actor, action, target_kind, target_ids, outcome)
    SELECT now() - nth * interval '1 minute', now() - nth * interval '1 minute', 'person-' || nth %% {PEOPLE},
           'task.cancel', 'task', ARRAY[gen_random_uuid()::text, %(example)s::text || nth], 'done'
    FROM generate_series(1, %(count)s) AS nth
"""  # noqa: S608


class Past(NamedTuple):
    """Ids of what there is, to ask for."""

    completed: str
    failed: str
    waiting: str
    small: str
    large: str


def fill(server: Server, rows: int, share: float = 1.0) -> Past:
    """All of it. Workflows come first: a real worker runs them, in an otherwise empty table."""
    small, large = _workflows(server, max(1, round(DIAMONDS * share)), max(10, round(LARGE * share)))
    # Nothing of this is in the queue that workers of the benchmark serve.
    codes = {"error_code": f"'CODE_' || nth %% {CODES}", "retry_count": "nth %% 3"}
    server.fill_finished(round(rows * 0.5), **_NAMED)
    server.fill_finished(round(rows * 0.15), **FAILED, **codes, **_NAMED)
    server.fill("noop", round(rows * 0.2), **_NAMED)
    server.fill("noop", round(rows * 0.15), **LATER, **_NAMED)
    failed = _one(server, "FAILED")
    _weeks(server, share, failed)
    server.settle()
    server.do("VACUUM ANALYZE horsies_rollup, horsies_audit, horsies_worker_states")
    return Past(_one(server, "COMPLETED"), failed, _one(server, "PENDING"), small, large)


def add_snapshots(server: Server, share: float = 1.0) -> None:
    """Those of a worker that runs now, and of some that are gone."""
    with server.silently() as conn:
        conn.execute(_SNAPSHOTS.encode(), {"count": max(5, round(SNAPSHOTS * share))})
    server.do("VACUUM ANALYZE horsies_worker_states")


def empty(server: Server) -> None:
    server.clear()
    server.do("TRUNCATE horsies_rollup, horsies_audit")


def _workflows(server: Server, diamonds: int, width: int) -> tuple[str, str]:
    """Small ones that have run to their end, and one that is on its way: its tasks are for later."""
    workflows.start(server, "diamonds", diamonds)
    with worker(server) as running:
        server.ring()
        until(lambda: not server.row(workflows.IS_RUNNING)[0], [running], "workflows", 0.1, 600)
    [small] = server.row("SELECT id FROM horsies_workflows WHERE name = 'diamond' LIMIT 1")
    workflows.start(server, "roots", width)
    server.put_off(workflows.FAR_S)
    [large] = server.row("SELECT id FROM horsies_workflows WHERE name = 'roots'")
    return str(small), str(large)


def _weeks(server: Server, share: float, example: str) -> None:
    minutes = max(60, round(MINUTES * share))
    with server.silently() as conn:
        for statement in (_ROLLUP, _GAUGES):
            conn.execute(statement.encode(), {"minutes": minutes, "example": example})
        conn.execute(_AUDIT.encode(), {"count": max(10, round(ENTRIES * share)), "example": example})


def _one(server: Server, status: str) -> str:
    return str(server.row("SELECT id FROM horsies_tasks WHERE status = %s AND workflow_id IS NULL LIMIT 1", status)[0])
