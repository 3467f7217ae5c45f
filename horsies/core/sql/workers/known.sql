-- Which of these workers there is anything of: a row, or a task that is in its hands.
SELECT i.id FROM unnest(%(ids)s::text[]) AS i(id)
WHERE (SELECT w.worker_id FROM horsies_workers w WHERE w.worker_id = i.id) IS NOT NULL
   OR (SELECT t.id FROM horsies_tasks t WHERE t.claimed AND t.claimed_by_worker_id = i.id LIMIT 1) IS NOT NULL
