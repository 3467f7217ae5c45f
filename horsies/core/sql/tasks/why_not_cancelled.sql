-- What kept a task from being cancelled: it has ended or is running, or it belongs to a workflow.
SELECT status, workflow_id FROM horsies_tasks WHERE id = %(task_id)s
