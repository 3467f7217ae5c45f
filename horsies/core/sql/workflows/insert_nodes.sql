-- Inserts the nodes of new workflows, and the elements of maps (F-95), each in its first state: roots are ENQUEUED with their
-- task, or RUNNING with their child workflow, which the same transaction writes.
INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, task_kwargs, queue_name, priority,
    task_options, flags, good_until, dependencies, dependents, deps_total, args_from, workflow_ctx_from, join_type,
    min_success, allow_failed_deps, status, task_id, map_index, map_position, map_options, sub_workflow_key, sub_workflow_id,
    ready_at, enqueued_at, started_at)
SELECT w.workflow_id, w.task_index, w.node_id, w.node_type, w.task_name, w.task_kwargs, w.queue_name, w.priority,
    w.task_options, w.flags::jsonb, w.good_until,
    ARRAY(SELECT json_array_elements_text(w.dependencies)::int), ARRAY(SELECT json_array_elements_text(w.dependents)::int),
    json_array_length(w.dependencies), w.args_from,
    CASE WHEN w.ctx_from IS NOT NULL THEN ARRAY(SELECT json_array_elements_text(w.ctx_from)::int) END, w.join_type,
    w.min_success, w.allow_failed_deps, w.status, w.task_id, w.map_index, w.map_position, w.map_options, w.sub_workflow_key,
    w.sub_workflow_id,
    CASE WHEN w.status <> 'PENDING' THEN now() END, CASE WHEN w.status IN ('ENQUEUED', 'RUNNING') THEN now() END,
    CASE WHEN w.status = 'RUNNING' THEN now() END
FROM json_to_recordset(%(rows)s::json) AS w(workflow_id text, task_index int, node_id text, node_type text, task_name text,
    task_kwargs text, queue_name text, priority int, task_options text, flags text, good_until timestamptz, dependencies json,
    dependents json, args_from jsonb, ctx_from json, join_type text, min_success int, allow_failed_deps bool, status text,
    task_id text, map_index int, map_position int, map_options jsonb, sub_workflow_key text, sub_workflow_id text)
