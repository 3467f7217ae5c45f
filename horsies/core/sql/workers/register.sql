-- The worker's row, also when it was deleted meanwhile (R-40): registration and refresh are the same statement. With it the set
-- of task names that the worker knows (O-31): the names are given until the set is stored. Its row is shared by all workers
-- with these names, so it is refreshed rarely, and never waited for: a heartbeat must not.
WITH stored AS (
    INSERT INTO horsies_known_names (names_hash, names)
    SELECT %(names_hash)s, %(names)s::text[] WHERE %(names)s::text[] IS NOT NULL
    ON CONFLICT (names_hash) DO NOTHING
), seen AS (
    -- `since`: from then on there has been such a worker without a longer pause.
    UPDATE horsies_known_names k
    SET seen_at = now(), since = CASE WHEN k.seen_at < now() - make_interval(secs => %(pause)s) THEN now() ELSE k.since END
    WHERE k.names_hash = ANY(ARRAY(
        SELECT names_hash FROM horsies_known_names
        WHERE names_hash = %(names_hash)s AND (seen_at < now() - interval '5 s' OR seen_at > now()) FOR UPDATE SKIP LOCKED))
)
INSERT INTO horsies_workers AS w (worker_id, started_at, last_heartbeat_at, hostname, pid, boot_id, pid_namespace, process_start,
                             liveness_key, sweeping, queues, recovery, metadata, names_hash)
VALUES (%(worker_id)s, now() - make_interval(secs => %(age)s), now(), %(hostname)s, %(pid)s, %(boot_id)s, %(pid_namespace)s,
        %(process_start)s, %(liveness_key)s, %(sweeping)s, %(queues)s, %(recovery)s, %(metadata)s, %(names_hash)s)
-- A start that somebody has set to infinity would be refused for ever (D-14).
ON CONFLICT (worker_id) DO UPDATE SET last_heartbeat_at = now(), started_at = GREATEST(LEAST(w.started_at, now()), '0001-01-01Z'),
                                      names_hash = EXCLUDED.names_hash
-- The time of the server, by which the worker notices that its clock was set (R-23), whether its names were stored before, and
-- whether somebody has asked it to drain since it started (W-55).
RETURNING extract(epoch FROM now())::float8, EXISTS (SELECT FROM horsies_known_names WHERE names_hash = %(names_hash)s),
          COALESCE(w.drain_requested_at > now() - make_interval(secs => %(age)s), FALSE)
