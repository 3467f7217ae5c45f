-- The newest snapshots of one worker, oldest first, as points of a chart.
SELECT * FROM (
    SELECT snapshot_at, tasks_running, tasks_claimed, cpu_percent, memory_usage_mb, memory_percent, children_memory_mb
    FROM horsies_worker_states WHERE worker_id = %(worker_id)s ORDER BY snapshot_at DESC LIMIT %(limit)s
) newest ORDER BY snapshot_at
