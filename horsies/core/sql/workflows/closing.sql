-- Returns what decides how the given workflows end: their output node, the nodes that a success policy names, and the node
-- that failed first, if any (F-42, F-43). The failure that the workflow itself has recorded is returned as node -1.
SELECT n.workflow_id, n.task_index, n.status, n.result, n.error_code, n.completed_at
FROM unnest(%(workflows)s::text[], %(indexes)s::int[]) AS w(workflow_id, task_index)
CROSS JOIN LATERAL (
    SELECT * FROM horsies_workflow_tasks WHERE workflow_id = w.workflow_id AND task_index = w.task_index OFFSET 0
) n
UNION ALL
SELECT f.* FROM unnest(%(ids)s::text[]) AS w(id) CROSS JOIN LATERAL (
    SELECT workflow_id, task_index, status, result, error_code, completed_at FROM horsies_workflow_tasks
    WHERE workflow_id = w.id AND status = 'FAILED' AND node_type <> 'ELEMENT'
    ORDER BY completed_at, task_index LIMIT 1
) f
UNION ALL
SELECT id, -1, 'FAILED', '{"err":' || error || '}', error_code, created_at
FROM horsies_workflows WHERE id = ANY(%(ids)s::text[]) AND error IS NOT NULL
