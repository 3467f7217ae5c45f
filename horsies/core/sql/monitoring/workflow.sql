-- One workflow, and how many nodes and edges it has.
SELECT w.id AS workflow_id, w.name, w.definition_key, w.status, w.open_nodes, w.error_code, w.parent_workflow_id,
       w.root_workflow_id, w.depth, w.good_until, w.sent_at, w.started_at, w.paused_at, w.completed_at, w.on_error,
       w.output_index, w.success_policy, w.result, w.error, n.nodes, n.nodes_ended, n.total_nodes,
       n.total_edges
FROM horsies_workflows w CROSS JOIN LATERAL (
    SELECT count(*) AS nodes, count(*) AS total_nodes,
           count(*) FILTER (WHERE status NOT IN ('PENDING', 'READY', 'ENQUEUED', 'RUNNING')) AS nodes_ended,
           COALESCE(sum(cardinality(dependencies)), 0) AS total_edges
    FROM horsies_workflow_tasks WHERE workflow_id = w.id
) n
WHERE w.id = %(workflow_id)s
