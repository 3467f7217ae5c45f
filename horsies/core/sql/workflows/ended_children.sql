-- The open nodes of these child workflows, which have ended (F-62), with what their end was and how many nodes had which.
SELECT n.workflow_id, n.task_index, n.node_type, n.status, n.dependents, n.deps_total, n.deps_completed, n.deps_failed,
       n.deps_skipped, n.join_type, n.min_success, n.allow_failed_deps, n.map_index, n.task_id,
       (n.map_options -> 'first') IS NOT NULL, (n.map_options ->> 'max_parallel')::int,
       c.id, c.status, c.result, c.error, s.total, s.completed, s.failed, s.skipped
FROM unnest(%(children)s::text[]) AS w(id)
-- States are asked for outside: an index of theirs must not lead to all that are in them.
CROSS JOIN LATERAL (SELECT * FROM horsies_workflows WHERE id = w.id OFFSET 0) c
CROSS JOIN LATERAL (
    SELECT * FROM horsies_workflow_tasks
    WHERE workflow_id = c.parent_workflow_id AND task_index = c.parent_task_index OFFSET 0
) n
CROSS JOIN LATERAL (
    SELECT count(*) AS total, count(*) FILTER (WHERE status = 'COMPLETED') AS completed,
           count(*) FILTER (WHERE status = 'FAILED') AS failed, count(*) FILTER (WHERE status = 'SKIPPED') AS skipped
    FROM horsies_workflow_tasks WHERE workflow_id = c.id AND node_type <> 'ELEMENT'
) s
WHERE c.status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND n.sub_workflow_id = c.id
  AND n.status IN ('READY', 'ENQUEUED', 'RUNNING')
ORDER BY COALESCE(c.completed_at, c.updated_at), n.workflow_id, n.task_index
