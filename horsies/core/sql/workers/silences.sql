-- How long each registered worker has been silent, whether sweeps speak of it, and how often it wants to be heard of. For
-- people who are about to sweep by hand (R-94).
SELECT worker_id, sweeping AS takes_part, extract(epoch FROM now() - GREATEST(LEAST(last_heartbeat_at, now()), '0001-01-01Z'))::float8 AS silence_s,
       jsonb_path_query_first(recovery, '$.worker_recovery.heartbeat_interval ? (@ >= 0 && @ <= 1e11)')::float8 / 1000 AS heartbeat_interval_s
FROM horsies_workers ORDER BY last_heartbeat_at, worker_id
