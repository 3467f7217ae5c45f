-- Locks the workflows with the given ids, and those to which the given tasks belong, in the order in which every process locks
-- them (D-63), so that one process at a time decides about their nodes. Returns the columns of `Flow`.
SELECT id, status, on_error, output_index, success_policy, error_code IS NOT NULL, parent_workflow_id, parent_task_index,
       root_workflow_id, depth, good_until, COALESCE(good_until <= now(), FALSE), open_nodes
FROM horsies_workflows
WHERE id = ANY(%(ids)s::text[] || ARRAY(
    SELECT workflow_id::text FROM horsies_workflow_tasks WHERE task_id = ANY(%(tasks)s::text[])
))
ORDER BY depth, id FOR NO KEY UPDATE
