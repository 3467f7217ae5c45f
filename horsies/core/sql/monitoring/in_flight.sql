-- The tasks that workers hold, by queue, name and state.
SELECT status, queue_name, task_name, count(*) FROM horsies_tasks WHERE claimed GROUP BY status, queue_name, task_name
