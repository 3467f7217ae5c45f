-- Deletes lines that tasks logged longer than `age` ago (R-80), `most` rows at most.
DELETE FROM horsies_task_logs WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM horsies_task_logs WHERE written_at < now() - %(age)s::interval ORDER BY written_at LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
)) RETURNING TRUE
