-- The snapshots of one worker, newest first. Where one has no settings (W-71), they are those of the newest that has some:
-- a worker keeps its settings for its life.
WITH settings AS MATERIALIZED (
    SELECT queues, queue_priorities, queue_max_concurrency, recovery_config FROM horsies_worker_states
    WHERE worker_id = %(worker_id)s AND recovery_config IS NOT NULL ORDER BY snapshot_at DESC LIMIT 1
)
SELECT s.id, s.worker_id, s.snapshot_at, s.hostname, s.pid, s.processes, s.max_claim_batch, s.max_claim_per_worker,
    s.cluster_wide_cap, COALESCE(NULLIF(s.queues, '{}'), f.queues, '{}') AS queues, COALESCE(s.queue_priorities, f.queue_priorities) AS queue_priorities,
    COALESCE(s.queue_max_concurrency, f.queue_max_concurrency) AS queue_max_concurrency,
    COALESCE(s.recovery_config, f.recovery_config) AS recovery_config, s.tasks_running, s.tasks_claimed, s.memory_usage_mb,
    s.memory_percent, s.cpu_percent, s.worker_started_at, s.children_memory_mb
FROM horsies_worker_states s LEFT JOIN settings f ON s.recovery_config IS NULL
WHERE s.worker_id = %(worker_id)s
ORDER BY s.snapshot_at DESC, s.id DESC
LIMIT %(limit)s
