-- The worker's row, also when it was deleted meanwhile (R-40): registration and refresh are the same statement.
INSERT INTO horsies_workers (worker_id, started_at, last_heartbeat_at, hostname, pid, boot_id, pid_namespace, process_start,
                             liveness_key, sweeping, queues, recovery, metadata)
VALUES (%(worker_id)s, now() - make_interval(secs => %(age)s), now(), %(hostname)s, %(pid)s, %(boot_id)s, %(pid_namespace)s,
        %(process_start)s, %(liveness_key)s, %(sweeping)s, %(queues)s, %(recovery)s, %(metadata)s)
ON CONFLICT (worker_id) DO UPDATE SET last_heartbeat_at = now()
-- The time of the server, by which the worker notices that its clock was set (R-23).
RETURNING extract(epoch FROM now())::float8
