-- Inserts new workflows, which are RUNNING at once (F-20, F-80). A row whose id exists already is left out and not returned.
INSERT INTO horsies_workflows (id, name, definition_key, status, on_error, output_index, success_policy, parent_workflow_id,
    parent_task_index, root_workflow_id, depth, good_until, open_nodes, sent_at, started_at)
SELECT w.id, w.name, w.definition_key, 'RUNNING', w.on_error, w.output_index, w.success_policy, w.parent_workflow_id,
    w.parent_task_index, w.root_workflow_id, w.depth, w.good_until, w.open_nodes, COALESCE(w.sent_at, now()), now()
FROM json_to_recordset(%(rows)s::json) AS w(id text, name text, definition_key text, on_error text, output_index int,
    success_policy jsonb, parent_workflow_id text, parent_task_index int, root_workflow_id text, depth int,
    good_until timestamptz, open_nodes int, sent_at timestamptz)
ORDER BY w.depth, w.id COLLATE "C"
ON CONFLICT DO NOTHING
RETURNING id
