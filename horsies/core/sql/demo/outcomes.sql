-- How the tasks of one queue ended: state, error code and the outcomes of their attempts in order ("+" marks one that
-- was followed by a retry), with the number of tasks for each combination.
SELECT t.task_name, t.status, t.error_code, coalesce(a.outcomes, '') AS attempts, count(*) AS tasks,
       coalesce(sum(a.attempts), 0)::int AS attempt_rows
FROM horsies_tasks t
LEFT JOIN LATERAL (
    SELECT string_agg(outcome || CASE WHEN will_retry THEN '+' ELSE '' END, ' ' ORDER BY attempt) AS outcomes,
           count(*) AS attempts
    FROM horsies_task_attempts WHERE task_id = t.id
) a ON TRUE
WHERE t.queue_name = %(queue)s
GROUP BY t.task_name, t.status, t.error_code, coalesce(a.outcomes, '')
ORDER BY t.task_name, t.status
