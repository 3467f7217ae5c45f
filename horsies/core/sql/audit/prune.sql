-- Deletes records of what people did longer than `age` ago (R-80), the oldest first.
DELETE FROM horsies_audit WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM horsies_audit WHERE at < now() - %(age)s::interval ORDER BY at LIMIT %(most)s FOR UPDATE SKIP LOCKED
)) RETURNING TRUE
