-- Returns the nodes that count the nodes of the given tasks, at most `most` of them: their dependents, and the map of an element.
-- The columns are those of `FlowNode` and then those of `Payload`. A node with many dependencies is left out, because its
-- inputs may be large and it is rarely the last of them that has ended; whoever needs it reads it by its key.
SELECT n.workflow_id, n.task_index, n.node_type, n.status, n.dependents, n.deps_total, n.deps_completed, n.deps_failed,
       n.deps_skipped, n.join_type, n.min_success, n.allow_failed_deps, n.map_index, n.task_id, n.sub_workflow_id,
       (n.map_options -> 'first') IS NOT NULL, jsonb_path_query_first(n.map_options, '$.max_parallel ? (@ >= 0 && @ <= 1e9)')::int,
       n.workflow_id, n.task_index, n.node_id, n.node_type, n.status, n.task_name, n.task_kwargs, n.queue_name, n.priority,
       n.task_options, n.flags::text, n.good_until, n.args_from, n.workflow_ctx_from, n.map_options, n.map_index,
       n.sub_workflow_key, n.ready_at
FROM (
    SELECT DISTINCT e.workflow_id, d.task_index
    FROM unnest(%(tasks)s::text[]) AS w(id)
    CROSS JOIN LATERAL (
        SELECT workflow_id, node_type, map_index, dependents FROM horsies_workflow_tasks WHERE task_id = w.id OFFSET 0
    ) e
    CROSS JOIN LATERAL unnest(CASE WHEN e.node_type = 'ELEMENT' THEN ARRAY[e.map_index] ELSE e.dependents END) AS d(task_index)
    LIMIT %(most)s
) k CROSS JOIN LATERAL (
    SELECT * FROM horsies_workflow_tasks WHERE workflow_id = k.workflow_id AND task_index = k.task_index OFFSET 0
) n
WHERE n.deps_total <= %(deps)s
