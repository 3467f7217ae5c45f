-- How the tasks of these queues ended: state, error code, the outcomes of their attempts in order ("+" marks one that was
-- followed by a retry) and how many workers ran them, with the number of tasks for each combination. One more row for
-- each state of their workflows.
WITH task AS (
    SELECT id, task_name, status, error_code, workflow_id FROM horsies_tasks WHERE queue_name = ANY(%(queues)s::text[])
)
SELECT t.task_name AS name, t.status, t.error_code, coalesce(a.outcomes, '') AS attempts, a.workers, count(*) AS total
FROM task t
LEFT JOIN LATERAL (
    SELECT string_agg(outcome || CASE WHEN will_retry THEN '+' ELSE '' END, ' ' ORDER BY attempt) AS outcomes,
           count(DISTINCT worker_id) AS workers
    FROM horsies_task_attempts WHERE task_id = t.id
) a ON TRUE
GROUP BY 1, 2, 3, 4, 5
UNION ALL
SELECT 'workflow', w.status, w.error_code, '', 0, count(*)
FROM horsies_workflows w WHERE w.id IN (SELECT workflow_id FROM task)
GROUP BY 1, 2, 3
