-- Returns the open nodes of the given tasks that have ended (F-70), in the order of their ends, with status and result of the
-- task. A task that no longer belongs to its node is left out, and so is a task whose node has ended already. One step
-- takes results of `bytes` in total: rows beyond that have no result, and false in the last column.
SELECT e.workflow_id, e.task_index, e.node_type, e.status, e.dependents, e.deps_total, e.deps_completed, e.deps_failed,
       e.deps_skipped, e.join_type, e.min_success, e.allow_failed_deps, e.map_index, e.task_id, e.sub_workflow_id,
       (e.map_options -> 'first') IS NOT NULL, jsonb_path_query_first(e.map_options, '$.max_parallel ? (@ >= 0 && @ <= 1e9)')::int,
       e.task_status, CASE WHEN e.before < %(bytes)s THEN e.task_result END, e.task_error_code, e.before < %(bytes)s, e.node_id
FROM (
    SELECT n.*, t.status AS task_status, t.result AS task_result, t.error_code AS task_error_code, t.at,
           COALESCE(sum(octet_length(t.result)) OVER (
               ORDER BY t.at, n.workflow_id, n.task_index ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    -- Rows are looked up one by one here and wherever they are named, because a join could become a scan of the whole table.
    FROM unnest(%(tasks)s::text[]) AS w(id)
    CROSS JOIN LATERAL (SELECT * FROM horsies_workflow_tasks WHERE task_id = w.id OFFSET 0) n
    CROSS JOIN LATERAL (
        SELECT status, result, error_code, COALESCE(completed_at, failed_at, updated_at) AS at FROM horsies_tasks
        WHERE id = w.id OFFSET 0
    ) t
    WHERE n.status IN ('ENQUEUED', 'RUNNING') AND t.status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED')
) e
ORDER BY e.at, e.workflow_id, e.task_index
