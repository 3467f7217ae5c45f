-- Compares what is counted with what is in flight, in one snapshot, and notes the difference as a move (D-56). There is one
-- only where the triggers were off, or a transaction has looked at the tables before the count began. The caller has
-- `horsies:load`, so that two do not both correct it.
WITH counted AS (
    SELECT DISTINCT queue_name AS name FROM horsies_load
), in_flight AS (
    SELECT COALESCE(queue_name, '*') AS name, count(*) AS held, count(*) FILTER (WHERE status = 'RUNNING') AS running
    FROM horsies_tasks WHERE claimed AND EXISTS (SELECT FROM counted) GROUP BY GROUPING SETS ((queue_name), ())
)
INSERT INTO horsies_load_moves (queue_name, xid, held, running)
SELECT c.name, pg_current_xact_id()::text::bigint, COALESCE(f.held, 0) - n.held, COALESCE(f.running, 0) - n.running
FROM counted c CROSS JOIN LATERAL horsies_in_flight(c.name) n LEFT JOIN in_flight f USING (name)
WHERE COALESCE(f.held, 0) <> n.held OR COALESCE(f.running, 0) <> n.running
RETURNING queue_name, held, running
