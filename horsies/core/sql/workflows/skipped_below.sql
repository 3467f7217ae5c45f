-- Returns the SKIPPED nodes that depend on the given nodes, directly or through other skipped nodes (F-94).
WITH RECURSIVE below(workflow_id, task_index) AS (
    SELECT n.workflow_id, d.task_index
    FROM unnest(%(workflows)s::text[], %(indexes)s::int[]) AS w(workflow_id, task_index)
    CROSS JOIN LATERAL (
        SELECT * FROM horsies_workflow_tasks WHERE workflow_id = w.workflow_id AND task_index = w.task_index OFFSET 0
    ) n
    CROSS JOIN LATERAL unnest(n.dependents) AS d(task_index)
    UNION
    SELECT n.workflow_id, d.task_index
    FROM below b CROSS JOIN LATERAL (
        SELECT * FROM horsies_workflow_tasks WHERE workflow_id = b.workflow_id AND task_index = b.task_index OFFSET 0
    ) n
    CROSS JOIN LATERAL unnest(n.dependents) AS d(task_index)
    WHERE n.status = 'SKIPPED'
)
SELECT n.workflow_id, n.task_index, n.node_type, n.status, n.dependents, n.deps_total, n.deps_completed, n.deps_failed,
       n.deps_skipped, n.join_type, n.min_success, n.allow_failed_deps, n.map_index, n.task_id, n.sub_workflow_id,
       (n.map_options -> 'first') IS NOT NULL, jsonb_path_query_first(n.map_options, '$.max_parallel ? (@ >= 0 && @ <= 1e9)')::int
FROM below b CROSS JOIN LATERAL (
    SELECT * FROM horsies_workflow_tasks WHERE workflow_id = b.workflow_id AND task_index = b.task_index OFFSET 0
) n
WHERE n.status = 'SKIPPED'
