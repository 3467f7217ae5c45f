-- The row of a worker that is certainly dead goes, once nothing of it is left (R-100). If somebody has it locked, later.
DELETE FROM horsies_workers w
WHERE w.worker_id = (SELECT worker_id FROM horsies_workers WHERE worker_id = %(worker_id)s FOR UPDATE SKIP LOCKED)
  AND (SELECT t.id FROM horsies_tasks t WHERE t.claimed AND t.claimed_by_worker_id = w.worker_id LIMIT 1) IS NULL
