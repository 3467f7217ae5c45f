-- Every registered worker with its newest snapshot, if it wrote one. Older workers have their settings in each snapshot, and their
-- task names in their row; the names of others are in `known_names.sql`, a table that older schemas do not have.
SELECT w.worker_id, now() - GREATEST(LEAST(w.last_heartbeat_at, now()), '0001-01-01Z') < 3 * interval '1 ms' * COALESCE(
           jsonb_path_query_first(w.recovery, '$.worker_recovery.heartbeat_interval ? (@ >= 0 && @ <= 1e11)')::float8, 30000) AS is_live,
       w.hostname, w.pid, w.started_at, w.last_heartbeat_at,
       extract(epoch FROM now() - GREATEST(LEAST(w.last_heartbeat_at, now()), '0001-01-01Z'))::float8 AS silence_seconds,
       COALESCE((to_jsonb(w) ->> 'drain_requested_at')::timestamptz >= w.started_at, FALSE) AS is_draining,
       COALESCE(w.queues, '{}') AS queues, w.metadata -> 'task_names' AS task_names, to_jsonb(w) ->> 'names_hash' AS names_hash,
       jsonb_path_query_first(w.metadata, '$.prefetch_buffer ? (@ >= 0 && @ <= 1e9)')::int AS prefetch_buffer,
       jsonb_path_query_first(w.metadata, '$.concurrency ? (@ >= 1 && @ <= 1e9)')::int AS concurrency, s.processes, s.tasks_running,
       s.tasks_claimed, s.cpu_percent, s.memory_usage_mb, s.memory_percent, s.children_memory_mb, s.max_claim_per_worker,
       s.cluster_wide_cap, COALESCE(s.queue_priorities, w.metadata -> 'queue_priorities') AS queue_priorities,
       COALESCE(s.queue_max_concurrency, w.metadata -> 'queue_max_concurrency') AS queue_max_concurrency, s.snapshot_at
FROM (SELECT * FROM horsies_workers ORDER BY started_at, worker_id LIMIT %(most)s) w
LEFT JOIN LATERAL (
    SELECT * FROM horsies_worker_states WHERE worker_id = w.worker_id ORDER BY snapshot_at DESC LIMIT 1
) s ON TRUE
ORDER BY w.started_at, w.worker_id
