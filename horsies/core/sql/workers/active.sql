-- Every registered worker, and whether it has been silent for longer than `threshold` (R-43).
SELECT worker_id, last_heartbeat_at < now() - %(threshold)s::interval AS is_stale, started_at, last_heartbeat_at, hostname, pid
FROM horsies_workers ORDER BY started_at, worker_id
