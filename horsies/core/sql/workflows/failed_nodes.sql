-- Locks the FAILED nodes of this workflow in their order: all of them, or those that are named (F-94).
SELECT workflow_id, task_index, node_type, status, dependents, deps_total, deps_completed, deps_failed,
       deps_skipped, join_type, min_success, allow_failed_deps, map_index, task_id, sub_workflow_id,
       (map_options -> 'first') IS NOT NULL, jsonb_path_query_first(map_options, '$.max_parallel ? (@ >= 0 && @ <= 1e9)')::int
FROM horsies_workflow_tasks
WHERE workflow_id = %(id)s AND status = 'FAILED' AND node_type <> 'ELEMENT'
  AND (%(names)s::text[] IS NULL OR node_id = ANY(%(names)s::text[]))
ORDER BY task_index FOR NO KEY UPDATE
