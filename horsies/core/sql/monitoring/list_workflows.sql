-- Workflows: open ones first, newest first; then ended ones, last ended first. An index has this order.
SELECT id AS workflow_id, name, definition_key, status, open_nodes, error_code, parent_workflow_id, root_workflow_id, depth,
       good_until, sent_at, started_at, paused_at, completed_at
FROM horsies_workflows
WHERE (%(workflow_name)s::text IS NULL OR name = %(workflow_name)s::text)
  AND (%(status)s::text IS NULL OR status = %(status)s::text)
ORDER BY completed_at DESC NULLS FIRST, sent_at DESC, id LIMIT %(limit)s
