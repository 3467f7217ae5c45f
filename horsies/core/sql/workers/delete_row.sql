-- The row of a worker that is certainly dead goes, once nothing of it is left (R-100). If somebody has it locked, later. Its names
-- were known as long as it was alive by its own heartbeats, at most until now (O-31).
WITH deleted AS (
    DELETE FROM horsies_workers w
    WHERE w.worker_id = (SELECT worker_id FROM horsies_workers WHERE worker_id = %(worker_id)s FOR UPDATE SKIP LOCKED)
      AND (SELECT t.id FROM horsies_tasks t WHERE t.claimed AND t.claimed_by_worker_id = w.worker_id LIMIT 1) IS NULL
    RETURNING names_hash, last_heartbeat_at, recovery
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
SELECT TRUE FROM deleted
