-- The row of a worker that is certainly dead goes, once nothing of it is left (R-100).
DELETE FROM horsies_workers w
WHERE w.worker_id = %(worker_id)s
  AND (SELECT t.id FROM horsies_tasks t WHERE t.claimed AND t.claimed_by_worker_id = w.worker_id LIMIT 1) IS NULL
