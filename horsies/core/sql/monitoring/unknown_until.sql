-- When a waiting task of this name fails because nobody knows it (O-31): the first time at which a live worker of its queue would
-- decide so. `fail_unknown.sql` has the rule: it is due, the name has not been known, and workers of the code that judges have been
-- there, each for the grace of that worker.
SELECT min(GREATEST(%(due_at)s::timestamptz, k.since, l.known_at) + g.ms * interval '1 ms')
FROM horsies_workers w JOIN horsies_known_names k USING (names_hash)
CROSS JOIN LATERAL (
    SELECT jsonb_path_query_first(w.recovery, '$.unknown_task_grace_ms ? (@ > 0 && @ <= 1e11)')::float8 AS ms OFFSET 0
) g
CROSS JOIN (
    SELECT GREATEST(max(n.seen_at), max(a.until)) AS known_at
    FROM horsies_known_names n CROSS JOIN LATERAL (
        SELECT max(horsies_alive_until(last_heartbeat_at, recovery)) AS until FROM horsies_workers
        WHERE names_hash = n.names_hash
    ) a
    WHERE %(task_name)s = ANY(n.names)
) l
WHERE %(queue)s = ANY(w.queues) AND horsies_alive_until(w.last_heartbeat_at, w.recovery) > now()
