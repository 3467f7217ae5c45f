-- One node by its id. If there is no row, the workflow does not exist; if the row has no node, the workflow has no such
-- node.
SELECT n.task_index, n.node_id, n.node_type, n.task_name, n.sub_workflow_key, n.status, n.result
FROM horsies_workflows f
LEFT JOIN LATERAL (
    SELECT task_index, node_id, node_type, task_name, sub_workflow_key, status, result FROM horsies_workflow_tasks
    WHERE workflow_id = f.id AND node_id = %(node_id)s OFFSET 0
) n ON TRUE
WHERE f.id = %(workflow_id)s
