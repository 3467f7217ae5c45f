-- Snapshots of one worker, spread evenly over the last `seconds`: the newest of each of so many parts of that time, oldest first. Each
-- part is one look into the index, however many snapshots there are.
SELECT s.* FROM generate_series(1, %(parts)s::int) AS part CROSS JOIN LATERAL (
    SELECT snapshot_at, tasks_running, tasks_claimed, cpu_percent, memory_usage_mb, memory_percent, children_memory_mb
    FROM horsies_worker_states
    WHERE worker_id = %(worker_id)s
      AND snapshot_at > now() - make_interval(secs => %(seconds)s::float8 * (%(parts)s::int - part + 1) / %(parts)s::int)
      AND snapshot_at <= now() - make_interval(secs => %(seconds)s::float8 * (%(parts)s::int - part) / %(parts)s::int)
    ORDER BY snapshot_at DESC LIMIT 1
) s ORDER BY s.snapshot_at
