-- One node in full.
SELECT task_index, node_id, node_type, task_name, queue_name, status, task_id, sub_workflow_id, map_index, map_position,
       join_type, deps_total, deps_completed, deps_failed, deps_skipped, error_code, ready_at, enqueued_at, started_at,
       completed_at, priority, task_kwargs, task_options, dependencies, dependents, args_from, workflow_ctx_from, min_success,
       allow_failed_deps, good_until, sub_workflow_key, sub_workflow_summary, previous_task_ids, result
FROM horsies_workflow_tasks WHERE workflow_id = %(workflow_id)s AND task_index = %(task_index)s
