-- Deletes snapshots of workers older than `age` (R-80), the oldest first.
DELETE FROM horsies_worker_states WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM horsies_worker_states WHERE snapshot_at < now() - %(age)s::interval
    ORDER BY snapshot_at LIMIT %(most)s FOR UPDATE SKIP LOCKED))
RETURNING TRUE
