-- A task with the facts that explain why it is not running: its workflow, its node, its owner and its last sign of
-- life.
SELECT now(), t.id, t.task_name, t.queue_name, t.priority, t.status, t.enqueued_at, t.next_retry_at, t.good_until, t.claimed_at,
       t.started_at, t.ended_at, t.finalizing_at, t.error_code, t.retry_count, t.max_retries, t.claimed_by_worker_id,
       o.last_heartbeat_at, COALESCE(o.is_live, FALSE), COALESCE(o.runner_interval_s, 30), h.sent_at,
       t.workflow_id, w.name, w.status, w.paused_at, n.task_index
FROM horsies_tasks t
LEFT JOIN LATERAL (
    SELECT last_heartbeat_at, jsonb_path_query_first(recovery, '$.runner_heartbeat_interval_ms ? (@ >= 0 && @ <= 1e11)')::float8 / 1000 AS runner_interval_s,
           now() - GREATEST(LEAST(last_heartbeat_at, now()), '0001-01-01Z') < 3 * interval '1 ms' * COALESCE(
               jsonb_path_query_first(recovery, '$.worker_recovery.heartbeat_interval ? (@ >= 0 && @ <= 1e11)')::float8, 30000) AS is_live
    FROM horsies_workers WHERE worker_id = t.claimed_by_worker_id
) o ON TRUE
LEFT JOIN LATERAL (
    SELECT sent_at FROM horsies_heartbeats
    WHERE task_id = t.id AND role = CASE t.status WHEN 'RUNNING' THEN 'runner' ELSE 'claimer' END
    ORDER BY sent_at DESC LIMIT 1
) h ON t.claimed
LEFT JOIN LATERAL (SELECT name, status, paused_at FROM horsies_workflows WHERE id = t.workflow_id OFFSET 0) w ON TRUE
LEFT JOIN LATERAL (SELECT task_index FROM horsies_workflow_tasks WHERE task_id = t.id OFFSET 0) n ON TRUE
WHERE t.id = %(task_id)s
