-- Deletes the rows of dead workers that have not been heard of since they were judged (`seen`), and answers who is gone: those,
-- and the ones that had no row and still have none. One that came back meanwhile keeps its row and its tasks; so does one
-- whose row somebody has locked, which is mostly itself. Their names were known as long as they were alive by their own
-- heartbeats, at most until now (O-31); this is so in every statement that deletes such a row, and in `fail_unknown`.
WITH gone AS (
    SELECT * FROM unnest(%(ids)s::text[], %(seen)s::timestamptz[]) AS g(id, seen)
), deleted AS (
    DELETE FROM horsies_workers WHERE worker_id = ANY(ARRAY(
        SELECT w.worker_id FROM gone g CROSS JOIN LATERAL (
            SELECT worker_id FROM horsies_workers WHERE worker_id = g.id AND last_heartbeat_at <= g.seen FOR UPDATE SKIP LOCKED
        ) w))
    RETURNING worker_id, names_hash, last_heartbeat_at, recovery
), lives AS (
    SELECT names_hash, max(LEAST(now(), GREATEST(LEAST(last_heartbeat_at, now()), '0001-01-01Z') + 3 * interval '1 ms' * COALESCE(
               jsonb_path_query_first(recovery, '$.worker_recovery.heartbeat_interval ? (@ >= 0 && @ <= 1e11)')::float8, 30000))) AS until
    FROM deleted GROUP BY names_hash
), known AS (
    UPDATE horsies_known_names k SET seen_at = GREATEST(k.seen_at, l.until)
    FROM lives l
    WHERE k.names_hash = l.names_hash AND k.names_hash = ANY(ARRAY(
        SELECT n.names_hash FROM horsies_known_names n JOIN lives USING (names_hash) FOR UPDATE OF n SKIP LOCKED))
)
SELECT worker_id::text FROM deleted
UNION ALL
SELECT g.id FROM gone g
WHERE g.seen IS NULL AND (SELECT w.worker_id FROM horsies_workers w WHERE w.worker_id = g.id) IS NULL
