-- The workflows with these ids, and those to which these tasks belong, locked in the order in which everybody locks them
-- (D-63): whatever happens to their nodes, one at a time decides it. The columns of `Flow`.
SELECT id, status, on_error, output_index, success_policy, error_code IS NOT NULL, parent_workflow_id, parent_task_index,
       root_workflow_id, depth, good_until, COALESCE(good_until <= now(), FALSE), open_nodes
FROM horsies_workflows
WHERE id = ANY(%(ids)s::text[] || ARRAY(
    SELECT workflow_id::text FROM horsies_workflow_tasks WHERE task_id = ANY(%(tasks)s::text[])
))
ORDER BY depth, id FOR NO KEY UPDATE
