"""A database that has something of everything, which the tests of a module only read; and a dashboard of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from tests.conftest import fresh_database
from tests.web_support import Board, a_board

FILLED = """
    INSERT INTO horsies_tasks (id, task_name, queue_name, status, args, kwargs, task_options, claimed,
        claimed_by_worker_id, claimed_at, started_at, completed_at, failed_at, result, error_code, failed_reason,
        retry_count, max_retries, good_until, next_retry_at, flags, worker_hostname, worker_pid, workflow_id, claim_seq)
    SELECT 't-' || lower(s), 'mail.send', 'mail', s, '["a", 1]', '{"to": "x"}', '{"retry_policy": null}',
        s IN ('CLAIMED', 'RUNNING'), CASE WHEN s <> 'PENDING' THEN 'w1' END, CASE WHEN s <> 'PENDING' THEN now() END,
        CASE WHEN s NOT IN ('PENDING', 'CLAIMED') THEN now() END, CASE WHEN s = 'COMPLETED' THEN now() END,
        CASE WHEN s = 'FAILED' THEN now() END, CASE WHEN s = 'COMPLETED' THEN '{"ok": 1}' END,
        CASE WHEN s = 'FAILED' THEN 'CARD_DECLINED' WHEN s = 'EXPIRED' THEN 'TASK_EXPIRED' END,
        CASE WHEN s = 'FAILED' THEN 'it went wrong' END, CASE WHEN s = 'FAILED' THEN 2 ELSE 0 END, 3,
        now() + interval '1 h', NULL, '{"urgent": true}', 'host', 42, NULL, 1
    FROM unnest(ARRAY['PENDING', 'CLAIMED', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED']) AS s;
    INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, started_at, finished_at, error_code,
        error_message, failed_reason, worker_id)
    SELECT 't-failed', n, 'FAILED', n < 3, now(), now(), 'CARD_DECLINED', 'no money', 'it went wrong', 'w1'
    FROM generate_series(1, 3) AS n;
    INSERT INTO horsies_task_progress (task_id, claim_seq, attempt, done, total, message, first_done)
    VALUES ('t-running', 1, 1, 3, 10, 'three of ten', 1);
    INSERT INTO horsies_task_logs (task_id, claim_seq, attempt, first_line, last_line, lines)
    VALUES ('t-failed', 1, 1, 1, 1, '[[1.0, "INFO", "shop", "the first line"]]');
    INSERT INTO horsies_workers (worker_id, queues, hostname, pid)
    VALUES ('w1', '{mail}', 'host', 42), ('w2', '{default}', 'host', 43);
    UPDATE horsies_workers SET last_heartbeat_at = now() - interval '1 h' WHERE worker_id = 'w2';
    INSERT INTO horsies_worker_states (worker_id, hostname, pid, processes, queues, tasks_running, tasks_claimed,
        max_claim_batch, max_claim_per_worker, queue_priorities, queue_max_concurrency, worker_started_at, cpu_percent,
        memory_usage_mb)
    SELECT 'w1', 'host', 42, 2, '{mail}', n, 0, 0, 0, '{"mail": 1}', '{"mail": null}', now(), 12.5, 100.0
    FROM generate_series(1, 3) AS n;
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes, started_at, completed_at, error,
        error_code, success_policy)
    VALUES ('f-running', 'checkout', 'shop.checkout', 'RUNNING', 2, now(), NULL, NULL, NULL, NULL),
           ('f-paused', 'checkout', 'shop.checkout', 'PAUSED', 1, now(), NULL, NULL, NULL, NULL),
           ('f-failed', 'refund', 'shop.refund', 'FAILED', 0, now(), now(), '{"error_code": "X", "message": "no"}',
            'X', '{"cases": [[0]]}');
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status, dependencies,
        args_from, result, error_code, task_id, task_kwargs)
    VALUES ('f-running', 0, 'charge', 'TASK', 'shop.charge', 'COMPLETED', '{}', '{}', '{"ok": 5}', NULL, 't-completed',
            '{"to": "x"}'),
           ('f-running', 1, 'mail', 'TASK', 'mail.send', 'PENDING', '{0}', '{"amount": 0}', NULL, NULL, NULL, NULL),
           ('f-paused', 0, 'charge', 'TASK', 'shop.charge', 'READY', '{}', '{}', NULL, NULL, NULL, NULL),
           ('f-failed', 0, 'refund', 'TASK', 'shop.refund', 'FAILED', '{}', '{}', '{"err": {"message": "no"}}', 'X',
            't-failed', NULL);
    INSERT INTO horsies_schedules (name, definition)
    VALUES ('nightly', '{"task_name": "mail.send", "pattern": {"type": "daily"}, "kwargs": {"to": "x"}}');
    INSERT INTO horsies_schedule_state (schedule_name, last_run_at, next_run_at, last_task_id, run_count)
    VALUES ('nightly', now() - interval '1 day', now() + interval '1 h', 't-completed', 3),
           ('of the code', NULL, now(), NULL, 0);
"""
# A path of each route that has something in it.
THERE = {
    "task_id": "t-failed",
    "workflow_id": "f-running",
    "index": "0",
    "worker_id": "w1",
    "id": "t-pending",
}


@pytest.fixture(scope="module")
def filled_url(server_url: str, template: str) -> Iterator[str]:
    with fresh_database(server_url, template) as url:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(FILLED.encode())
        yield url


@pytest.fixture
async def board(filled_url: str) -> AsyncIterator[Board]:
    """Everybody may do everything."""
    async with a_board(filled_url) as board:
        yield board
