-- The indexes of the nodes of a workflow that failed.
SELECT task_index FROM horsies_workflow_tasks WHERE workflow_id = %(workflow_id)s AND status = 'FAILED'
ORDER BY task_index LIMIT %(most)s
