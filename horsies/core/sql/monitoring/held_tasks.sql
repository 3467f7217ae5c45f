-- What each worker holds, by the name of the task: how many, the one that has been running for longest, and for how many seconds.
-- Of tasks that have not started, or whose code has ended, only the number counts. At most `most` are read.
SELECT claimed_by_worker_id, task_name, count(*),
       (array_agg(id ORDER BY running_since, id) FILTER (WHERE running_since IS NOT NULL))[1],
       extract(epoch FROM now() - min(running_since))::float8
FROM (
    SELECT claimed_by_worker_id, task_name, id,
           CASE WHEN status = 'RUNNING' AND finalizing_at IS NULL AND started_at IS NOT NULL
                THEN GREATEST(started_at, '0001-01-01Z') END AS running_since
    FROM horsies_tasks WHERE claimed ORDER BY claimed_by_worker_id LIMIT %(most)s
) held
WHERE claimed_by_worker_id IS NOT NULL
GROUP BY claimed_by_worker_id, task_name
