-- The snapshots of one worker, newest first.
SELECT id, worker_id, snapshot_at, hostname, pid, processes, max_claim_batch, max_claim_per_worker, cluster_wide_cap,
    queues, queue_priorities, queue_max_concurrency, recovery_config, tasks_running, tasks_claimed, memory_usage_mb,
    memory_percent, cpu_percent, worker_started_at, children_memory_mb
FROM horsies_worker_states
WHERE worker_id = %(worker_id)s
ORDER BY snapshot_at DESC, id DESC
LIMIT %(limit)s
