-- The first node of a workflow that failed.
SELECT node_id, error_code FROM horsies_workflow_tasks WHERE workflow_id = %(workflow_id)s AND status = 'FAILED'
ORDER BY task_index LIMIT 1
