-- Deletes the rows of dead workers that have not been heard of since they were judged (`seen`), and answers who is gone: those,
-- and the ones that had no row and still have none. One that came back meanwhile keeps its row and its tasks; so does one
-- whose row somebody has locked, which is mostly itself.
WITH gone AS (
    SELECT * FROM unnest(%(ids)s::text[], %(seen)s::timestamptz[]) AS g(id, seen)
), deleted AS (
    DELETE FROM horsies_workers WHERE worker_id = ANY(ARRAY(
        SELECT w.worker_id FROM gone g CROSS JOIN LATERAL (
            SELECT worker_id FROM horsies_workers WHERE worker_id = g.id AND last_heartbeat_at <= g.seen FOR UPDATE SKIP LOCKED
        ) w))
    RETURNING worker_id
)
SELECT worker_id::text FROM deleted
UNION ALL
SELECT g.id FROM gone g
WHERE g.seen IS NULL AND (SELECT w.worker_id FROM horsies_workers w WHERE w.worker_id = g.id) IS NULL
