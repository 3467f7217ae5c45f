-- The ended nodes of a workflow, without the elements of its maps; get() and results() return these.
SELECT task_index, node_id, node_type, task_name, sub_workflow_key, status, result
FROM horsies_workflow_tasks
WHERE workflow_id = %(workflow_id)s AND node_type <> 'ELEMENT'
ORDER BY task_index
