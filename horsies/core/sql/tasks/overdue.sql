-- Waiting tasks whose deadline has passed and that nobody has expired yet, the oldest deadline first (R-91); all if
-- `most` is null.
SELECT id, task_name, queue_name, good_until, now() - GREATEST(good_until, '0001-01-01Z') AS expired_for
FROM horsies_tasks
WHERE is_waiting AND good_until IS NOT NULL AND good_until <= now()
ORDER BY good_until LIMIT %(most)s
