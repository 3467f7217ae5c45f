-- Returns what is needed to enqueue the given nodes: the columns of `Payload`.
SELECT n.workflow_id, n.task_index, n.node_id, n.node_type, n.status, n.task_name, n.task_kwargs, n.queue_name, n.priority,
       n.task_options, n.flags::text, n.good_until, n.args_from, n.workflow_ctx_from, n.map_options, n.map_index,
       n.sub_workflow_key, n.ready_at
FROM unnest(%(workflows)s::text[], %(indexes)s::int[]) AS w(workflow_id, task_index)
CROSS JOIN LATERAL (
    SELECT * FROM horsies_workflow_tasks WHERE workflow_id = w.workflow_id AND task_index = w.task_index OFFSET 0
) n
ORDER BY n.workflow_id, n.task_index
