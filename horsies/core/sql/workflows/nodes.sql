-- Returns the given nodes and, up to `depth` edges further, the nodes that still wait for them: a cascade of skips may reach
-- these. It walks through at most `most` rows; a caller that needs more asks again from the last nodes.
WITH RECURSIVE reached(workflow_id, task_index, dependents, status, far) AS (
    SELECT n.workflow_id, n.task_index, n.dependents, n.status, 0
    FROM unnest(%(workflows)s::text[], %(indexes)s::int[]) AS w(workflow_id, task_index)
    CROSS JOIN LATERAL (
        SELECT * FROM horsies_workflow_tasks WHERE workflow_id = w.workflow_id AND task_index = w.task_index OFFSET 0
    ) n
    UNION
    SELECT n.workflow_id, n.task_index, n.dependents, n.status, r.far + 1
    FROM reached r CROSS JOIN LATERAL unnest(r.dependents) AS d(task_index)
    CROSS JOIN LATERAL (
        SELECT * FROM horsies_workflow_tasks WHERE workflow_id = r.workflow_id AND task_index = d.task_index OFFSET 0
    ) n
    WHERE r.far < %(depth)s AND r.status = 'PENDING' AND n.status = 'PENDING'
), known AS (
    SELECT DISTINCT workflow_id, task_index FROM (SELECT * FROM reached LIMIT %(most)s) r
)
SELECT n.workflow_id, n.task_index, n.node_type, n.status, n.dependents, n.deps_total, n.deps_completed, n.deps_failed,
       n.deps_skipped, n.join_type, n.min_success, n.allow_failed_deps, n.map_index, n.task_id, n.sub_workflow_id,
       (n.map_options -> 'first') IS NOT NULL, jsonb_path_query_first(n.map_options, '$.max_parallel ? (@ >= 0 && @ <= 1e9)')::int
FROM known k CROSS JOIN LATERAL (
    SELECT * FROM horsies_workflow_tasks WHERE workflow_id = k.workflow_id AND task_index = k.task_index OFFSET 0
) n
