-- Every node of these workflows in its present state, with the elements of maps. The result of a node that succeeded is
-- returned only on request, because it may be large.
SELECT workflow_id, task_index, node_id, node_type, task_name, sub_workflow_key, status,
    CASE WHEN %(results)s OR status = 'FAILED' THEN result END AS result, error_code, dependencies, map_index, map_position,
    task_id, previous_task_ids, sub_workflow_id, started_at, completed_at,
    CASE WHEN isfinite(started_at) AND isfinite(COALESCE(completed_at, now()))
         THEN extract(epoch FROM COALESCE(completed_at, clock_timestamp()) - started_at)::float8 END AS seconds
FROM horsies_workflow_tasks
WHERE workflow_id = ANY(%(workflow_ids)s::text[])
ORDER BY workflow_id, task_index
