-- Returns the results of the given nodes, for nodes that take them as input.
SELECT n.workflow_id, n.task_index, n.node_id, n.status, n.result, n.sub_workflow_summary
FROM unnest(%(workflows)s::text[], %(indexes)s::int[]) AS w(workflow_id, task_index)
CROSS JOIN LATERAL (
    SELECT * FROM horsies_workflow_tasks WHERE workflow_id = w.workflow_id AND task_index = w.task_index OFFSET 0
) n
