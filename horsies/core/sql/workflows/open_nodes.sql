-- Locks the nodes of the given workflows that are in one of the given states, in their order (D-63). It waits for a start
-- that has locked one of them.
SELECT workflow_id, task_index, node_type, status, dependents, deps_total, deps_completed, deps_failed,
       deps_skipped, join_type, min_success, allow_failed_deps, map_index, task_id, sub_workflow_id,
       (map_options -> 'first') IS NOT NULL, jsonb_path_query_first(map_options, '$.max_parallel ? (@ >= 0 && @ <= 1e9)')::int
FROM horsies_workflow_tasks
WHERE workflow_id = ANY(%(ids)s::text[]) AND status = ANY(%(states)s::text[])
ORDER BY workflow_id, task_index FOR NO KEY UPDATE
