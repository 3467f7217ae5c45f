-- The tasks that workers hold, by queue, name and state, and whether there are more than these. At most `most` are read; NULL
-- means all of them.
SELECT status, queue_name, task_name, count(*), COALESCE(bool_or(is_last), FALSE)
FROM (
    SELECT status, queue_name, task_name, row_number() OVER () = %(most)s::bigint AS is_last
    FROM (SELECT status, queue_name, task_name FROM horsies_tasks WHERE claimed ORDER BY claimed_by_worker_id LIMIT %(most)s) held
) t
GROUP BY status, queue_name, task_name
