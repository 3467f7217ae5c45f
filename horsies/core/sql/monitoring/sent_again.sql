-- Which of these tasks have been sent again as M-49a does it: there is a task with the key that `rerun` gives to their copy.
SELECT t.id FROM unnest(%(ids)s::text[]) AS w(id)
CROSS JOIN LATERAL (SELECT id, task_name FROM horsies_tasks WHERE id = w.id OFFSET 0) t
CROSS JOIN LATERAL (
    SELECT FROM horsies_tasks WHERE task_name = t.task_name AND idempotency_key = 'rerun of ' || t.id OFFSET 0
) copy
