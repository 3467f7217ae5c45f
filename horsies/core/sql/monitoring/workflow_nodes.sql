-- The first nodes of a workflow, by index.
SELECT task_index, node_id, node_type, task_name, queue_name, status, task_id, sub_workflow_id, map_index, map_position,
       join_type, deps_total, deps_completed, deps_failed, deps_skipped, error_code, ready_at, enqueued_at, started_at,
       completed_at, min_success, allow_failed_deps
FROM horsies_workflow_tasks WHERE workflow_id = %(workflow_id)s ORDER BY task_index LIMIT %(most)s
