-- Locks the child workflows of the given workflows that are in one of the given states, in their order (D-63). Returns the
-- columns of `Flow`. A child that changes its state before it is locked is returned too.
SELECT id, status, on_error, output_index, success_policy, error_code IS NOT NULL, parent_workflow_id, parent_task_index,
       root_workflow_id, depth, good_until, COALESCE(good_until <= now(), FALSE), open_nodes
FROM horsies_workflows
WHERE id = ANY(ARRAY(
    SELECT c.id::text FROM unnest(%(ids)s::text[]) AS w(id)
    CROSS JOIN LATERAL (SELECT id, status FROM horsies_workflows WHERE parent_workflow_id = w.id OFFSET 0) c
    WHERE c.status = ANY(%(states)s::text[])
))
ORDER BY depth, id FOR NO KEY UPDATE
