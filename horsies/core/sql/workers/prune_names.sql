-- Deletes sets of task names that no worker has had for `age` (O-31), and the notes about tasks that were left before that (O-32).
WITH old AS (
    DELETE FROM horsies_known_names k WHERE k.names_hash = ANY(ARRAY(
        SELECT n.names_hash FROM horsies_known_names n
        WHERE n.seen_at < now() - %(age)s::interval
          AND NOT EXISTS (SELECT FROM horsies_workers w WHERE w.names_hash = n.names_hash)
        LIMIT %(most)s FOR UPDATE SKIP LOCKED))
)
DELETE FROM horsies_left_tasks l WHERE l.task_id = ANY(ARRAY(
    SELECT task_id FROM horsies_left_tasks WHERE left_at < now() - %(age)s::interval
    ORDER BY left_at LIMIT %(most)s FOR UPDATE SKIP LOCKED))
