-- The open nodes of these tasks, which have ended (F-70), in the order of their ends, with what their end was. A task that
-- is no longer its node's, or whose node has taken its end already, is not there.
SELECT n.workflow_id, n.task_index, n.node_type, n.status, n.dependents, n.deps_total, n.deps_completed, n.deps_failed,
       n.deps_skipped, n.join_type, n.min_success, n.allow_failed_deps, n.map_index, n.task_id,
       (n.map_options -> 'first') IS NOT NULL, (n.map_options ->> 'max_parallel')::int,
       t.status, t.result, t.error_code
-- Looked up one by one, here and wherever rows are named: a join could be planned as a walk through the whole table.
FROM unnest(%(tasks)s::text[]) AS w(id)
CROSS JOIN LATERAL (
    SELECT * FROM horsies_workflow_tasks WHERE task_id = w.id OFFSET 0
) n
CROSS JOIN LATERAL (
    SELECT status, result, error_code, completed_at, failed_at, updated_at FROM horsies_tasks
    WHERE id = w.id OFFSET 0
) t
WHERE n.status IN ('ENQUEUED', 'RUNNING') AND t.status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED')
ORDER BY COALESCE(t.completed_at, t.failed_at, t.updated_at), n.workflow_id, n.task_index
