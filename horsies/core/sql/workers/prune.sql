-- Deletes the rows of workers that were last heard of longer than `age` ago and hold no task any more (R-85).
DELETE FROM horsies_workers WHERE worker_id = ANY(ARRAY(
    SELECT w.worker_id FROM horsies_workers w
    WHERE w.last_heartbeat_at < now() - %(age)s::interval
      AND (SELECT t.id FROM horsies_tasks t WHERE t.claimed AND t.claimed_by_worker_id = w.worker_id LIMIT 1) IS NULL
    ORDER BY w.last_heartbeat_at LIMIT %(most)s FOR UPDATE SKIP LOCKED))
RETURNING TRUE
