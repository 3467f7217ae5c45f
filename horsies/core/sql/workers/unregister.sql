-- The last thing a worker does in the database (W-53). The names that it knew were known until now (O-31).
WITH gone AS (
    DELETE FROM horsies_workers WHERE worker_id = %(worker_id)s RETURNING names_hash
)
UPDATE horsies_known_names k SET seen_at = GREATEST(k.seen_at, now())
WHERE k.names_hash = ANY(ARRAY(
    SELECT n.names_hash FROM horsies_known_names n JOIN gone USING (names_hash) FOR UPDATE OF n SKIP LOCKED))
