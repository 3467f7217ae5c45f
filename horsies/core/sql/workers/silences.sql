-- How long each registered worker has been silent, whether sweeps speak of it, and how often it wants to be heard of. For
-- people who are about to sweep by hand (R-94).
SELECT worker_id, sweeping AS takes_part, extract(epoch FROM now() - last_heartbeat_at)::float8 AS silence_s,
       (recovery -> 'worker_recovery' ->> 'heartbeat_interval')::float8 / 1000 AS heartbeat_interval_s
FROM horsies_workers ORDER BY last_heartbeat_at, worker_id
