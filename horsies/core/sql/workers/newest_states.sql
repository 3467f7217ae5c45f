-- The newest snapshot of each worker, with the newest settings that it wrote (W-71). Hops from worker to worker along the
-- index instead of reading all their diaries.
WITH RECURSIVE workers AS (
    (SELECT worker_id FROM horsies_worker_states ORDER BY worker_id LIMIT 1)
    UNION ALL
    SELECT (SELECT s.worker_id FROM horsies_worker_states s WHERE s.worker_id > w.worker_id ORDER BY s.worker_id LIMIT 1)
    FROM workers w WHERE w.worker_id IS NOT NULL
)
SELECT s.id, s.worker_id, s.snapshot_at, s.hostname, s.pid, s.processes, s.max_claim_batch, s.max_claim_per_worker,
    s.cluster_wide_cap, COALESCE(NULLIF(s.queues, '{}'), f.queues, '{}') AS queues, COALESCE(s.queue_priorities, f.queue_priorities) AS queue_priorities,
    COALESCE(s.queue_max_concurrency, f.queue_max_concurrency) AS queue_max_concurrency,
    COALESCE(s.recovery_config, f.recovery_config) AS recovery_config, s.tasks_running,
    s.tasks_claimed, s.memory_usage_mb, s.memory_percent, s.cpu_percent, s.worker_started_at, s.children_memory_mb
FROM workers w CROSS JOIN LATERAL (
    SELECT * FROM horsies_worker_states WHERE worker_id = w.worker_id ORDER BY snapshot_at DESC LIMIT 1
) s LEFT JOIN LATERAL (
    SELECT * FROM horsies_worker_states WHERE worker_id = w.worker_id AND recovery_config IS NOT NULL
    ORDER BY snapshot_at DESC LIMIT 1
) f ON s.recovery_config IS NULL
ORDER BY s.worker_id
