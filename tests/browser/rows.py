"""What the pages show in these tests: an ordinary day of the demo's shop with something of everything, a hundred
thousand tasks, a workflow of hundreds of nodes, and rows whose every text is hostile. Plain SQL: a page must show the
same however the rows came to be."""

from __future__ import annotations

import json
from typing import Any

from tests.browser.support import Shop

LIVE_WORKERS = ("shop-1:4211:9c0d25de", "shop-2:4198:41b7e0aa")
DEAD_WORKER = "shop-3:4502:7d13f2c9"
TRACEBACK = """Traceback (most recent call last):
  File "/app/shop/tasks.py", line 84, in resize_image
    image = open_image(path)
            ^^^^^^^^^^^^^^^^
  File "/app/shop/images.py", line 31, in open_image
    raise ValueError(f"{path} is not an image: unexpected end of file")
ValueError: products/1187.jpg is not an image: unexpected end of file
"""
NO_IMAGE = {
    "error_code": "UNHANDLED_EXCEPTION",
    "message": "Unhandled exception in task shop.resize_image: ValueError: products/1187.jpg is not an image",
    "data": None,
    "exception": {
        "type": "ValueError",
        "module": "builtins",
        "message": "products/1187.jpg is not an image: unexpected end of file",
        "traceback": TRACEBACK,
    },
}
DECLINED = {"error_code": "CARD_DECLINED", "message": "the bank refused the payment", "data": {"reason": "limit"}}
BUSY = {"error_code": "SMTP_BUSY", "message": "the mail server refused ada@example.com: try later"}

# Ids as horsies makes them: those of later tasks are greater, and their ends differ.
A_DAY = """
CREATE FUNCTION pg_temp.id_of(n int) RETURNS text LANGUAGE sql AS $$
    SELECT '0199b1c4-' || lpad(to_hex(n), 4, '0') || '-7' || substr(md5(n::text), 1, 3) || '-a'
        || substr(md5(n::text), 4, 3) || '-' || substr(md5(n::text), 7, 12)
$$;

INSERT INTO horsies_workers (worker_id, queues, hostname, pid, started_at, last_heartbeat_at, metadata)
VALUES (%(w1)s, '{demo-orders,demo-mail,demo-images}', 'shop-1', 4211, now() - interval '9 h', now(), '{}'),
       (%(w2)s, '{demo-orders,demo-mail,demo-images}', 'shop-2', 4198, now() - interval '3 days', now(), '{}'),
       (%(w3)s, '{demo-images}', 'shop-3', 4502, now() - interval '6 days', now() - interval '14 min', '{}');

INSERT INTO horsies_worker_states (worker_id, hostname, pid, processes, queues, tasks_running, tasks_claimed,
    max_claim_batch, max_claim_per_worker, queue_priorities, queue_max_concurrency, worker_started_at, cpu_percent,
    memory_percent, memory_usage_mb, children_memory_mb, snapshot_at)
SELECT w.id, w.host, w.pid, 4, w.queues, round(2.6 - n %% 2 - cos((n + w.pid) / 7.0)), n %% 3, 0, 4,
    '{"demo-orders": 1, "demo-mail": 2, "demo-images": 3}',
    '{"demo-orders": null, "demo-mail": 2, "demo-images": null}', now() - interval '9 h',
    20 + 15 * sin(n / 9.0) + w.pid %% 7, 12.5, 61, 190 + 12 * cos(n / 5.0), w.last - n * interval '30 s'
FROM (VALUES (%(w1)s, 'shop-1', 4211, '{demo-orders,demo-mail,demo-images}'::text[], now()),
             (%(w2)s, 'shop-2', 4198, '{demo-orders,demo-mail,demo-images}'::text[], now()),
             (%(w3)s, 'shop-3', 4502, '{demo-images}'::text[], now() - interval '14 min'))
     AS w(id, host, pid, queues, last),
     generate_series(0, 120) AS n;

-- Ended tasks of the last hour: every twentieth did not succeed.
INSERT INTO horsies_tasks (id, task_name, queue_name, priority, status, kwargs, sent_at, enqueued_at, claimed_at,
    started_at, completed_at, failed_at, result, error_code, claimed_by_worker_id, worker_hostname, worker_pid,
    worker_process_name, retry_count, max_retries, claim_seq)
SELECT pg_temp.id_of(2 * n), t.name, t.queue, t.priority, CASE WHEN t.error IS NULL THEN 'COMPLETED' ELSE 'FAILED' END,
    t.kwargs, t.at, t.at, t.at + interval '0.2 s', t.at + interval '0.25 s',
    CASE WHEN t.error IS NULL THEN t.at + interval '0.25 s' + t.took END,
    CASE WHEN t.error IS NOT NULL THEN t.at + interval '0.25 s' + t.took END,
    CASE WHEN t.error IS NULL THEN t.result ELSE json_build_object('err', t.error::json)::text END,
    t.error::json ->> 'error_code', CASE WHEN n %% 2 = 0 THEN %(w1)s ELSE %(w2)s END,
    CASE WHEN n %% 2 = 0 THEN 'shop-1' ELSE 'shop-2' END, 4300 + n %% 8, 'horsies-child-' || n %% 4,
    t.retries, t.most, 1 + t.retries
FROM generate_series(1, 300) AS n, LATERAL (
    SELECT now() - (301 - n) * interval '12 s' AS at, (20 + n * 37 %% 400) * interval '1 ms' AS took,
        k.*, CASE WHEN n %% 20 = 0 THEN k.failure END AS error, CASE WHEN n %% 20 = 0 THEN k.most ELSE 0 END AS retries
    FROM (VALUES
        (0, 'shop.send_mail', 'demo-mail', 2, '{"to": "ada@example.com", "subject": "Your order ' || n || '"}',
         '{"ok": "''Your order'' was sent to ada@example.com"}', %(busy)s, 2),
        (1, 'shop.resize_image', 'demo-images', 3, '{"path": "products/' || 900 + n || '.jpg", "width": 640}',
         '{"ok": {"path": "products/' || 900 + n || '-640.jpg", "width": 640, "bytes": 48211}}', %(image)s, 0),
        (2, 'shop.check_stock', 'demo-orders', 1, '{}', '{"ok": 212}', %(declined)s, 0),
        (3, 'shop.charge', 'demo-orders', 1, '{"order": {"ok": ' || n || '}, "declines": 0.1}', '{"ok": ' || n || '}',
         %(declined)s, 0)
    ) AS k(kind, name, queue, priority, kwargs, result, failure, most)
    WHERE k.kind = CASE WHEN n %% 60 = 40 THEN 1 WHEN n %% 60 = 20 THEN 3 WHEN n %% 60 = 0 THEN 0 ELSE n %% 4 END
) AS t;

INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, started_at, finished_at, error_code,
    error_message, worker_id, worker_pid)
SELECT t.id, n, 'FAILED', n <= t.retry_count, t.started_at - (t.retry_count + 1 - n) * interval '4 s',
    t.failed_at - (t.retry_count + 1 - n) * interval '4 s', t.error_code,
    t.result::json -> 'err' ->> 'message', t.claimed_by_worker_id, t.worker_pid
FROM horsies_tasks t, generate_series(1, 3) AS n WHERE t.status = 'FAILED' AND n <= t.retry_count + 1;

-- What waits: nobody serves the archive, the mail server is slow, and some tasks are to be tried again.
INSERT INTO horsies_tasks (id, task_name, queue_name, priority, kwargs, sent_at, enqueued_at)
SELECT pg_temp.id_of(401 + 2 * n), 'shop.archive', 'demo-archive', 9, '{"order": ' || n || '}', at, at
FROM generate_series(1, 9) AS n, LATERAL (SELECT now() - (25 - n) * interval '1 min' AS at) AS a;
INSERT INTO horsies_tasks (id, task_name, queue_name, priority, kwargs, sent_at, enqueued_at, retry_count, max_retries,
    next_retry_at, claim_seq)
SELECT pg_temp.id_of(541 + 2 * n), 'shop.send_mail', 'demo-mail', 2,
    '{"to": "grace@example.com", "subject": "News ' || n || '"}', at, at, (n %% 4 = 0)::int, 2,
    CASE WHEN n %% 4 = 0 THEN now() + n * interval '7 s' END, (n %% 4 = 0)::int
FROM generate_series(1, 12) AS n, LATERAL (SELECT now() - (90 - n) * interval '1 s' AS at) AS a;
-- What runs.
INSERT INTO horsies_tasks (id, task_name, queue_name, priority, kwargs, status, claimed, claimed_by_worker_id,
    claimed_at, started_at, sent_at, enqueued_at, worker_hostname, worker_pid, worker_process_name, claim_seq)
SELECT pg_temp.id_of(581 + 2 * n), CASE WHEN n < 4 THEN 'shop.report' ELSE 'shop.resize_image' END, 'demo-images', 3,
    '{"pages": 40}', CASE WHEN n < 6 THEN 'RUNNING' ELSE 'CLAIMED' END, TRUE,
    CASE WHEN n = 3 THEN %(w3)s WHEN n %% 2 = 0 THEN %(w1)s ELSE %(w2)s END, at, CASE WHEN n < 6 THEN at END, at, at,
    'shop-' || 1 + n %% 2, 4300 + n, 'horsies-child-' || n %% 4, 1
FROM generate_series(1, 7) AS n, LATERAL (SELECT now() - (60 - n * 8) * interval '1 s' AS at) AS a;
INSERT INTO horsies_task_progress (task_id, claim_seq, attempt, done, total, message, first_done, first_at)
SELECT pg_temp.id_of(581 + 2 * n), 1, 1, n * 11, 40, 'page ' || n * 11, 0, now() - interval '50 s'
FROM generate_series(1, 3) AS n;
INSERT INTO horsies_task_logs (task_id, claim_seq, attempt, first_line, last_line, lines)
SELECT pg_temp.id_of(583), 1, 1, n, n,
    json_build_array(json_build_array(extract(epoch FROM now()) - 60 + n, 'INFO', 'shop', 'page ' || n || ' of 40'))
FROM generate_series(1, 11) AS n;
INSERT INTO horsies_tasks (id, task_name, queue_name, status, kwargs, sent_at, enqueued_at, good_until, error_code)
SELECT pg_temp.id_of(301 + 2 * n), 'shop.send_mail', 'demo-mail', CASE WHEN n < 3 THEN 'CANCELLED' ELSE 'EXPIRED' END,
    '{"to": "all@example.com", "subject": "Sale"}', now() - interval '40 min', now() - interval '40 min',
    now() - interval '10 min', CASE WHEN n = 3 THEN 'TASK_EXPIRED' END
FROM generate_series(1, 3) AS n;

INSERT INTO horsies_schedules (name, definition) VALUES
    ('sale-mail', '{"task_name": "shop.send_mail", "pattern": {"type": "daily", "time": "08:15:00"},
      "timezone": "Europe/Paris", "kwargs": {"to": "all@example.com", "subject": "Sale"}, "enabled": true}');
INSERT INTO horsies_schedule_state (schedule_name, last_run_at, next_run_at, last_task_id, run_count) VALUES
    ('demo-stock-check', now() - interval '9 s', now() + interval '11 s', pg_temp.id_of(596), 1620),
    ('demo-nightly-report', now() - interval '9 h', now() + interval '15 h', NULL, 61),
    ('demo-newsletter', now() - interval '3 days', now() + interval '4 days', pg_temp.id_of(600), 9),
    ('sale-mail', now() - interval '1 day', now() + interval '5 h', pg_temp.id_of(592), 4);
INSERT INTO horsies_audit (at, ended_at, actor, action, target_kind, target_ids, outcome, details) VALUES
    (now() - interval '32 min', now(), 'ada', 'task.cancel', 'task', ARRAY[pg_temp.id_of(303)], 'done', '{}'),
    (now() - interval '31 min', now(), 'ada', 'task.cancel', 'task', ARRAY[pg_temp.id_of(305)], 'done', '{}'),
    (now() - interval '12 min', now(), 'grace', 'tasks.rerun', 'task', ARRAY[pg_temp.id_of(40), pg_temp.id_of(160),
     pg_temp.id_of(280), pg_temp.id_of(400)], 'done', '{"changed": 4}'),
    (now() - interval '5 min', now(), 'grace', 'workflow.pause', 'workflow', '{0199b1c4-ffff-7000-a000-0000000f0003}',
     'TASK_NOT_CANCELLABLE', '{}');
INSERT INTO horsies_rollup (span, start_at, queue_name, task_name, error_code, completed, failed, wait_seconds,
    wait_counts, run_seconds, run_counts, example_id)
SELECT 60, date_trunc('minute', now()) - n * interval '1 min', q.queue, q.name, coalesce(q.code, ''),
    CASE WHEN q.code IS NULL THEN round(q.often * (1.2 + 0.4 * sin(n / 9.0)) + d.dice %% 9) ELSE 0 END,
    CASE WHEN q.code IS NOT NULL AND (d.dice %% 3 = 0 OR n BETWEEN 8 AND 17) THEN 1 + d.dice %% 4 ELSE 0 END,
    4, array_fill(0, ARRAY[12 + d.dice %% 3]) || ARRAY[4, 10, 6 + d.dice %% 4, 1], 9,
    array_fill(0, ARRAY[13 + d.dice %% 2]) || ARRAY[2, 6, 8, 3, d.dice %% 2],
    CASE WHEN q.code IS NOT NULL THEN pg_temp.id_of(q.example) END
FROM generate_series(0, 59) AS n, (VALUES
    ('demo-mail', 'shop.send_mail', NULL, 20, 0), ('demo-images', 'shop.resize_image', NULL, 15, 0),
    ('demo-orders', 'shop.charge', NULL, 8, 0), ('demo-images', 'shop.resize_image', 'UNHANDLED_EXCEPTION', 0, 80),
    ('demo-orders', 'shop.charge', 'CARD_DECLINED', 0, 40)) AS q(queue, name, code, often, example),
    LATERAL (SELECT get_byte(decode(md5(n || q.name), 'hex'), 0) AS dice) AS d;
INSERT INTO horsies_rollup (span, start_at, queue_name, task_name, error_code, waiting, oldest_due_seconds, running)
SELECT 60, date_trunc('minute', now()) - n * interval '1 min', q.queue, '', '', q.waits + d.dice %% 7,
    q.age + (59 - n) * q.grows, 2 + d.dice %% 6
FROM generate_series(0, 59) AS n, (VALUES
    ('*', 20, 60, 20), ('demo-mail', 10, 3, 0), ('demo-images', 2, 1, 0), ('demo-orders', 0, 0, 0),
    ('demo-archive', 9, 0, 20)) AS q(queue, waits, age, grows),
    LATERAL (SELECT get_byte(decode(md5(n || q.queue), 'hex'), 1) AS dice) AS d;
"""
# An order of nine items that failed, one that runs, and one that is paused.
ORDERS = """
INSERT INTO horsies_workflows (id, name, definition_key, status, on_error, open_nodes, sent_at, started_at,
    completed_at, paused_at, error, error_code, result)
VALUES ('0199b1c4-ffff-7000-a000-0000000f0001', 'order', 'shop.order', 'FAILED', 'FAIL', 0, now() - interval '7 min',
        now() - interval '7 min', now() - interval '6 min 48 s', NULL, %(declined)s, 'CARD_DECLINED', NULL),
       ('0199b1c4-ffff-7000-a000-0000000f0002', 'order', 'shop.order', 'RUNNING', 'FAIL', 7, now() - interval '14 s',
        now() - interval '14 s', NULL, NULL, NULL, NULL, NULL),
       ('0199b1c4-ffff-7000-a000-0000000f0003', 'order', 'shop.order', 'PAUSED', 'PAUSE', 9, now() - interval '26 min',
        now() - interval '26 min', NULL, now() - interval '25 min', NULL, NULL, NULL),
       ('0199b1c4-ffff-7000-a000-0000000f0004', 'order', 'shop.order', 'COMPLETED', 'FAIL', 0,
        now() - interval '31 min', now() - interval '31 min', now() - interval '30 min 40 s', NULL, NULL, NULL,
        '{"ok": "order 1184: 9 items"}');
INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, queue_name, status,
    dependencies, dependents, deps_total, deps_completed, deps_failed, args_from, map_index, map_position, map_options,
    result, error_code, ready_at, started_at, completed_at)
SELECT w.id, n.index, n.node, n.type, n.task, 'demo-orders', n.states[w.number], n.needs, n.needed,
    cardinality(n.needs),
    CASE WHEN n.states[w.number] IN ('PENDING', 'SKIPPED') THEN 0 ELSE cardinality(n.needs) END,
    (n.states[w.number] = 'SKIPPED')::int, '{}', n.map_index, n.position, NULL,
    CASE n.states[w.number] WHEN 'COMPLETED' THEN '{"ok": 9}'
        WHEN 'FAILED' THEN json_build_object('err', %(declined)s::json)::text END,
    CASE n.states[w.number] WHEN 'FAILED' THEN 'CARD_DECLINED' END,
    CASE WHEN n.states[w.number] <> 'PENDING' THEN w.at + n.begins * interval '1 s' END,
    CASE WHEN n.states[w.number] IN ('COMPLETED', 'FAILED', 'RUNNING')
        THEN w.at + (n.begins + 0.3) * interval '1 s' END,
    CASE WHEN n.states[w.number] IN ('COMPLETED', 'FAILED', 'SKIPPED') THEN w.at + n.ends * interval '1 s' END
FROM (SELECT id, row_number() OVER (ORDER BY id) AS number, started_at AS at FROM horsies_workflows
      WHERE id LIKE '0199b1c4-ffff-%%') AS w,
     (SELECT 0 AS index, 'reserve' AS node, 'TASK' AS type, 'shop.reserve' AS task, '{}'::int[] AS needs,
             '{1,2}'::int[] AS needed, NULL::int AS map_index, NULL::int AS position, 0.0 AS begins, 1.2 AS ends,
             '{COMPLETED,COMPLETED,COMPLETED,COMPLETED}'::text[] AS states
      UNION ALL SELECT 1, 'charge', 'TASK', 'shop.charge', '{0}', '{4}', NULL, NULL, 1.2, 3.9,
             '{FAILED,COMPLETED,FAILED,COMPLETED}'
      UNION ALL SELECT 2, 'items', 'TASK', 'shop.list_items', '{0}', '{3}', NULL, NULL, 1.2, 1.9,
             '{COMPLETED,COMPLETED,COMPLETED,COMPLETED}'
      UNION ALL SELECT 3, 'pack', 'MAP', 'shop.pack', '{2}', '{4}', NULL, NULL, 1.9, 11,
             '{COMPLETED,RUNNING,READY,COMPLETED}'
      UNION ALL SELECT 4, 'ship', 'TASK', 'shop.ship', '{1,3}', '{}', NULL, NULL, 11, 12,
             '{SKIPPED,PENDING,PENDING,COMPLETED}'
      UNION ALL SELECT 5 + i, 'pack[' || i || ']', 'ELEMENT', 'shop.pack', '{}', '{}', 3, i, 2 + i, 2.8 + i,
             ARRAY['COMPLETED', CASE WHEN i < 4 THEN 'COMPLETED' WHEN i < 6 THEN 'RUNNING' ELSE 'PENDING' END,
                   'PENDING', 'COMPLETED']
      FROM generate_series(0, 8) AS i) AS n;
"""
ORDER_FAILED, ORDER_RUNNING, ORDER_PAUSED = (f"0199b1c4-ffff-7000-a000-0000000f000{n}" for n in (1, 2, 3))


def an_id(number: int) -> str:
    """As `pg_temp.id_of` makes it."""
    from hashlib import md5

    digest = md5(str(number).encode()).hexdigest()
    return f"0199b1c4-{number:04x}-7{digest[:3]}-a{digest[3:6]}-{digest[6:18]}"


FAILED_TASK, RUNNING_TASK, WAITING_TASK, STRANDED_TASK = map(an_id, (80, 583, 543, 403))
# Every screen, with something on it.
SCREENS = {
    "overview": "/",
    "tasks": "/tasks",
    "failed-tasks": "/tasks?status=FAILED",
    "task-failed": f"/tasks/{FAILED_TASK}",
    "task-running": f"/tasks/{RUNNING_TASK}",
    "task-waiting": f"/tasks/{STRANDED_TASK}",
    "failures": "/failures?window=1h",
    "queues": "/queues",
    "queue": "/queues/demo-mail",
    "workflows": "/workflows",
    "workflow-failed": f"/workflows/{ORDER_FAILED}",
    "workflow-running": f"/workflows/{ORDER_RUNNING}",
    "node": f"/workflows/{ORDER_FAILED}/nodes/1",
    "workers": "/workers",
    "worker": f"/workers/{LIVE_WORKERS[0]}",
    "ping": "/workers/ping",
    "schedules": "/schedules",
    "audit": "/audit",
}


def fill(shop: Shop) -> None:
    """An ordinary day, with troubles of every kind."""
    values: dict[str, Any] = {"w1": LIVE_WORKERS[0], "w2": LIVE_WORKERS[1], "w3": DEAD_WORKER}
    values |= {"busy": json.dumps(BUSY), "image": json.dumps(NO_IMAGE), "declined": json.dumps(DECLINED)}
    shop.script(A_DAY + ORDERS, values)


MANY = 100_000
MANY_TASKS = """
INSERT INTO horsies_tasks (id, task_name, queue_name, priority, status, kwargs, sent_at, enqueued_at, claimed_at,
    started_at, completed_at, failed_at, error_code, claimed_by_worker_id, claim_seq)
SELECT '0199c000-' || lpad(to_hex(n / 65536), 4, '0') || '-7000-a000-' || lpad(to_hex(n %% 65536), 12, '0'),
    'shop.send_mail', 'demo-mail', 2, s.status, '{"to": "ada@example.com", "subject": "News"}', s.at, s.at, s.at, s.at,
    CASE WHEN s.status = 'COMPLETED' THEN s.at + interval '80 ms' END,
    CASE WHEN s.status = 'FAILED' THEN s.at + interval '80 ms' END,
    CASE WHEN s.status = 'FAILED' THEN 'SMTP_BUSY' END, 'shop-1:4211:9c0d25de', 1
FROM generate_series(1, %(many)s) AS n, LATERAL (
    SELECT CASE WHEN n %% 50 = 0 THEN 'FAILED' WHEN n > %(many)s - 20000 THEN 'PENDING' ELSE 'COMPLETED' END AS status,
        now() - (%(many)s - n) * interval '0.3 s' AS at) AS s;
ANALYZE horsies_tasks;
"""


def fill_with_many(shop: Shop) -> None:
    """A hundred thousand tasks, of which a fifth waits."""
    shop.script(MANY_TASKS, {"many": MANY})


LARGE = "0199d000-0000-7000-a000-000000000500"
LARGE_WORKFLOW = """
INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes, sent_at, started_at, completed_at,
    error_code)
VALUES (%(id)s, 'season', 'shop.season', 'FAILED', 0, now() - interval '9 min', now() - interval '9 min', now(),
    'OUT_OF_STOCK');
INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, queue_name, status,
    dependencies, map_index, map_position, error_code, ready_at, started_at, completed_at)
SELECT %(id)s, n.index, n.node, n.type, n.task, 'demo-orders',
    CASE WHEN n.index = ANY(%(failed)s) THEN 'FAILED' WHEN n.index = ANY(%(skipped)s) THEN 'SKIPPED'
        ELSE 'COMPLETED' END,
    n.needs, n.map_index, n.position, CASE WHEN n.index = ANY(%(failed)s) THEN 'OUT_OF_STOCK' END,
    n.at, n.at, n.at + interval '5 s'
FROM (
    SELECT 0 AS index, 'plan' AS node, 'TASK' AS type, 'shop.reserve' AS task, '{}'::int[] AS needs,
        NULL::int AS map_index, NULL::int AS position, now() - interval '9 min' AS at
    -- Twenty branches, each a chain of nine nodes whose middle one has a side step.
    UNION ALL SELECT 1 + b * 10 + s, CASE s WHEN 9 THEN 'side ' ELSE 'step ' END || b || '.' || s, 'TASK',
        'shop.charge', ARRAY[CASE WHEN s = 0 THEN 0 WHEN s = 9 THEN 1 + b * 10 + 4 ELSE b * 10 + s END], NULL, NULL,
        now() - interval '9 min' + (10 + s * 20 + b) * interval '1 s'
    FROM generate_series(0, 19) AS b, generate_series(0, 9) AS s
    UNION ALL SELECT 201, 'gather', 'TASK', 'shop.list_items',
        ARRAY(SELECT 1 + b * 10 + 8 FROM generate_series(0, 19) AS b), NULL, NULL, now() - interval '4 min'
    UNION ALL SELECT 202, 'pack', 'MAP', 'shop.pack', '{201}', NULL, NULL, now() - interval '3 min'
    UNION ALL SELECT 203, 'ship', 'TASK', 'shop.ship', '{202}', NULL, NULL, now() - interval '1 min'
    UNION ALL SELECT 204 + i, 'pack[' || i || ']', 'ELEMENT', 'shop.pack', '{}', 202, i,
        now() - interval '3 min' + i * interval '0.4 s'
    FROM generate_series(0, 295) AS i
) AS n;
"""
LARGE_FAILED = (25, 116, 202, 300, 301)  # two steps, the map, and two of its elements


def fill_with_a_large_workflow(shop: Shop) -> None:
    """A workflow of 500 nodes: branches, a map, and failures in both."""
    skipped = [26, 27, 28, 29, 117, 118, 119, 203]
    shop.script(LARGE_WORKFLOW, {"id": LARGE, "failed": list(LARGE_FAILED), "skipped": skipped})
