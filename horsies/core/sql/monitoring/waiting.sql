-- Waiting tasks by queue and name: how many there are, how many may be claimed now, and since when the oldest of those
-- is due. The cost depends on the waiting tasks, not on the ended ones.
SELECT queue_name, task_name, count(*), count(*) FILTER (WHERE is_due),
       extract(epoch FROM now() - min(enqueued_at) FILTER (WHERE is_due))::float8
FROM (
    SELECT queue_name, task_name, GREATEST(enqueued_at, '0001-01-01Z') AS enqueued_at,
           enqueued_at <= now() AND (next_retry_at IS NULL OR next_retry_at <= now()) AS is_due
    FROM horsies_tasks WHERE is_waiting
) t
GROUP BY queue_name, task_name
