-- What each worker holds, by the name of the task: how many, the one that has been running for longest, and for how many seconds.
-- Of tasks whose code has ended only the number counts. At most `most` are read.
SELECT claimed_by_worker_id, task_name, count(*), (array_agg(id ORDER BY started_at, id) FILTER (WHERE is_running))[1],
       extract(epoch FROM now() - GREATEST(min(started_at) FILTER (WHERE is_running), '0001-01-01Z'))::float8
FROM (
    SELECT claimed_by_worker_id, task_name, id, started_at,
           status = 'RUNNING' AND started_at IS NOT NULL AND finalizing_at IS NULL AS is_running
    FROM horsies_tasks WHERE claimed ORDER BY claimed_by_worker_id LIMIT %(most)s
) held
WHERE claimed_by_worker_id IS NOT NULL
GROUP BY claimed_by_worker_id, task_name
