-- Writes every change of nodes that a step has decided on, in one statement (F-21, F-70): status, result, counters, links. A row
-- with `was` must be in that state. A row without a new status keeps its status, and only its counters change. The step holds
-- the lock of the workflow, so a row that is not there means a bug. Then this statement fails, by asking for a setting that does
-- not exist, so that the commit can be sent with it.
WITH wanted AS (
    SELECT * FROM unnest(%(workflows)s::text[], %(indexes)s::int[], %(was)s::text[], %(states)s::text[], %(results)s::text[],
                         %(codes)s::text[], %(completed)s::int[], %(failed)s::int[], %(skipped)s::int[], %(tasks)s::text[],
                         %(children)s::text[], %(summaries)s::text[], %(maps)s::text[], %(opens)s::int[])
             AS w(workflow_id, task_index, was, status, result, error_code, completed, failed, skipped, task_id, child_id,
                  summary, map_options, opens)
), locked AS (
    SELECT n.id, w.was, w.status, w.result, w.error_code, w.completed, w.failed, w.skipped, w.task_id, w.child_id, w.summary,
           w.map_options, w.opens
    FROM (SELECT * FROM wanted ORDER BY workflow_id, task_index) w CROSS JOIN LATERAL (
        SELECT id, status FROM horsies_workflow_tasks
        WHERE workflow_id = w.workflow_id AND task_index = w.task_index FOR NO KEY UPDATE
    ) n
    WHERE w.was IS NULL OR n.status = w.was
), moved AS (
    UPDATE horsies_workflow_tasks n
    SET status = COALESCE(l.status, n.status),
        result = CASE WHEN l.opens = 1 THEN l.result ELSE COALESCE(l.result, n.result) END,
        error_code = CASE WHEN l.opens = 1 THEN l.error_code ELSE COALESCE(l.error_code, n.error_code) END,
        -- A running map counts its elements (D-50). Before that, the same counters counted its dependencies.
        deps_total = COALESCE((l.map_options::jsonb ->> 'count')::int, n.deps_total),
        deps_completed = CASE WHEN l.map_options IS NULL THEN n.deps_completed + l.completed ELSE 0 END,
        deps_failed = CASE WHEN l.map_options IS NULL THEN n.deps_failed + l.failed ELSE 0 END,
        deps_skipped = CASE WHEN l.map_options IS NULL THEN n.deps_skipped + l.skipped ELSE 0 END,
        map_options = COALESCE(l.map_options::jsonb, n.map_options),
        previous_task_ids = CASE WHEN l.opens = 1 AND n.task_id IS NOT NULL THEN n.previous_task_ids || n.task_id
                                 ELSE n.previous_task_ids END,
        task_id = CASE WHEN l.task_id IS NOT NULL THEN l.task_id WHEN l.opens = 1 THEN NULL ELSE n.task_id END,
        sub_workflow_id = CASE WHEN l.child_id IS NOT NULL THEN l.child_id WHEN l.opens = 1 THEN NULL ELSE n.sub_workflow_id END,
        sub_workflow_summary = CASE WHEN l.opens = 1 THEN l.summary ELSE COALESCE(l.summary, n.sub_workflow_summary) END,
        ready_at = CASE WHEN l.was = 'PENDING' AND l.status IN ('READY', 'ENQUEUED', 'RUNNING') OR l.opens = 1 AND l.status IN ('READY', 'ENQUEUED')
                        THEN now() WHEN l.opens = 1 THEN NULL ELSE n.ready_at END,
        enqueued_at = CASE WHEN l.status = 'ENQUEUED' OR l.was IN ('PENDING', 'READY') AND l.status = 'RUNNING' THEN now()
                           WHEN l.opens = 1 THEN NULL ELSE n.enqueued_at END,
        started_at = CASE WHEN l.was <> 'RUNNING' AND l.status = 'RUNNING' THEN now()
                          WHEN l.opens = 1 THEN NULL ELSE n.started_at END,
        completed_at = CASE WHEN l.status IN ('COMPLETED', 'FAILED', 'SKIPPED') THEN now()
                            WHEN l.opens = 1 THEN NULL ELSE n.completed_at END,
        updated_at = now()
    FROM locked l WHERE n.id = l.id
    RETURNING n.id
)
SELECT count(*), CASE WHEN count(*) <> %(count)s::int THEN current_setting('horsies.nodes_are_not_as_they_were_read') END FROM moved
