-- Returns the elements of this map that did not succeed (F-94), in their order.
SELECT workflow_id, task_index, node_type, status, dependents, deps_total, deps_completed, deps_failed,
       deps_skipped, join_type, min_success, allow_failed_deps, map_index, task_id, sub_workflow_id,
       (map_options -> 'first') IS NOT NULL, jsonb_path_query_first(map_options, '$.max_parallel ? (@ >= 0 && @ <= 1e9)')::int
FROM horsies_workflow_tasks
WHERE workflow_id = %(id)s AND map_index = %(index)s AND node_type = 'ELEMENT' AND status IN ('FAILED', 'SKIPPED')
ORDER BY task_index
