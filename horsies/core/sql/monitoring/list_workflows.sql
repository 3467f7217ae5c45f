-- Workflows: open ones first, newest first; then ended ones, last ended first. Looks at `look` workflows at most in each of four
-- places of the indexes: those of the name, those of the state, those without an end, and those that ended last. Nodes are numbered
-- without gaps, so the last one says how many there are; `most_open` at most of those that have not ended are counted.
SELECT w.id AS workflow_id, w.name, w.definition_key, w.status, w.open_nodes, w.error_code, w.parent_workflow_id, w.root_workflow_id,
       w.depth, w.good_until, w.sent_at, w.started_at, w.paused_at, w.completed_at,
       n.nodes, CASE WHEN n.open <= %(most_open)s::int THEN n.nodes - n.open END AS nodes_ended
FROM (SELECT * FROM (
    (SELECT id, name, definition_key, status, open_nodes, error_code, parent_workflow_id, root_workflow_id, depth, good_until,
            sent_at, started_at, paused_at, completed_at
     FROM horsies_workflows WHERE name = %(workflow_name)s::text ORDER BY name LIMIT %(look)s)
    UNION
    (SELECT id, name, definition_key, status, open_nodes, error_code, parent_workflow_id, root_workflow_id, depth, good_until,
            sent_at, started_at, paused_at, completed_at
     FROM horsies_workflows WHERE status = %(status)s::text ORDER BY status LIMIT %(look)s)
    UNION
    (SELECT id, name, definition_key, status, open_nodes, error_code, parent_workflow_id, root_workflow_id, depth, good_until,
            sent_at, started_at, paused_at, completed_at
     FROM horsies_workflows WHERE completed_at IS NULL ORDER BY completed_at LIMIT %(look)s)
    UNION
    (SELECT id, name, definition_key, status, open_nodes, error_code, parent_workflow_id, root_workflow_id, depth, good_until,
            sent_at, started_at, paused_at, completed_at
     FROM horsies_workflows WHERE completed_at IS NOT NULL ORDER BY completed_at DESC LIMIT %(look)s)
) looked
WHERE (%(workflow_name)s::text IS NULL OR name = %(workflow_name)s::text)
  AND (%(status)s::text IS NULL OR status = %(status)s::text)
ORDER BY completed_at DESC NULLS FIRST, sent_at DESC, id LIMIT %(limit)s) w
CROSS JOIN LATERAL (
    SELECT (SELECT max(t.task_index)::bigint + 1 FROM horsies_workflow_tasks t WHERE t.workflow_id = w.id) AS nodes,
           (SELECT count(*) FROM (
               SELECT FROM horsies_workflow_tasks t WHERE t.workflow_id = w.id AND w.completed_at IS NULL
                 AND t.status IN ('PENDING', 'READY', 'ENQUEUED', 'RUNNING') LIMIT %(most_open)s::int + 1) first) AS open
) n
ORDER BY w.completed_at DESC NULLS FIRST, w.sent_at DESC, w.id
