-- Returns the open nodes of the given child workflows that have ended (F-62), with status and result of the child and the
-- counts of its nodes. One step takes results of `bytes` in total: rows beyond that have no result, and false after it.
SELECT e.workflow_id, e.task_index, e.node_type, e.status, e.dependents, e.deps_total, e.deps_completed, e.deps_failed,
       e.deps_skipped, e.join_type, e.min_success, e.allow_failed_deps, e.map_index, e.task_id, e.sub_workflow_id,
       (e.map_options -> 'first') IS NOT NULL, jsonb_path_query_first(e.map_options, '$.max_parallel ? (@ >= 0 && @ <= 1e9)')::int,
       e.child_id, e.child_status, CASE WHEN e.before < %(bytes)s THEN e.child_result END, e.child_error,
       e.before < %(bytes)s, s.total, s.completed, s.failed, s.skipped
FROM (
    SELECT n.*, c.id AS child_id, c.status AS child_status, c.result AS child_result, c.error AS child_error, c.at,
           COALESCE(sum(octet_length(c.result)) OVER (
               ORDER BY c.at, n.workflow_id, n.task_index ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM unnest(%(children)s::text[]) AS w(id)
    -- The status is compared outside the subquery, so that the planner does not start from an index on it.
    CROSS JOIN LATERAL (
        SELECT *, COALESCE(completed_at, updated_at) AS at FROM horsies_workflows WHERE id = w.id OFFSET 0
    ) c
    CROSS JOIN LATERAL (
        SELECT * FROM horsies_workflow_tasks
        WHERE workflow_id = c.parent_workflow_id AND task_index = c.parent_task_index OFFSET 0
    ) n
    WHERE c.status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND n.sub_workflow_id = c.id
      AND n.status IN ('READY', 'ENQUEUED', 'RUNNING')
) e
CROSS JOIN LATERAL (
    SELECT count(*) AS total, count(*) FILTER (WHERE status = 'COMPLETED') AS completed,
           count(*) FILTER (WHERE status = 'FAILED') AS failed, count(*) FILTER (WHERE status = 'SKIPPED') AS skipped
    FROM horsies_workflow_tasks WHERE workflow_id = e.child_id AND node_type <> 'ELEMENT'
) s
ORDER BY e.at, e.workflow_id, e.task_index
