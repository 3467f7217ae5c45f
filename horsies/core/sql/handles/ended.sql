-- Those of the given workflows that have ended or are paused, with the node whose result is theirs, if they have one.
-- A workflow that does not exist is returned without a status.
SELECT w.id, f.status, f.error, f.output_index, n.node_id, n.node_type, n.task_name, n.sub_workflow_key, n.status, n.result
FROM unnest(%(ids)s::text[]) AS w(id)
LEFT JOIN LATERAL (
    -- The rows are read one by one by their ids: a join could be planned as a walk through the whole table.
    SELECT id, status, error, output_index FROM horsies_workflows WHERE id = w.id OFFSET 0
) f ON TRUE
LEFT JOIN LATERAL (
    SELECT node_id, node_type, task_name, sub_workflow_key, status, result FROM horsies_workflow_tasks
    WHERE workflow_id = f.id AND task_index = f.output_index OFFSET 0
) n ON TRUE
WHERE f.id IS NULL OR f.status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'PAUSED')
