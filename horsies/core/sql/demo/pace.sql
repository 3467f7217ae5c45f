-- The time from the first start to the last end of one task's rows in a queue, in seconds.
SELECT count(*) AS tasks, extract(epoch FROM max(completed_at) - min(started_at))::float AS seconds
FROM horsies_tasks
WHERE queue_name = %(queue)s AND task_name = %(task)s AND status = 'COMPLETED'
