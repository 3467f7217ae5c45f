-- Workflows whose waiting tasks are not where they belong (R-39): held, although the workflow is not PAUSED; or in the line of
-- the claims, although it was paused within the last ten minutes. A few that come back later do no harm there.
WITH RECURSIVE held AS (
    (SELECT workflow_id FROM horsies_tasks WHERE is_held AND is_waiting ORDER BY workflow_id LIMIT 1)
    UNION ALL
    SELECT n.workflow_id FROM held h CROSS JOIN LATERAL (
        SELECT workflow_id FROM horsies_tasks WHERE is_held AND is_waiting AND workflow_id > h.workflow_id
        ORDER BY workflow_id LIMIT 1
    ) n
)
(SELECT h.workflow_id FROM held h
 WHERE (SELECT w.status FROM horsies_workflows w WHERE w.id = h.workflow_id) IS DISTINCT FROM 'PAUSED' LIMIT %(most)s)
UNION ALL
(SELECT w.id FROM horsies_workflows w
 WHERE w.status = 'PAUSED' AND w.paused_at > now() - interval '10 minutes' AND COALESCE((
     SELECT TRUE FROM horsies_workflow_tasks n CROSS JOIN LATERAL (
         SELECT is_waiting AND NOT is_held AS is_in_line FROM horsies_tasks WHERE id = n.task_id OFFSET 0
     ) t
     WHERE n.workflow_id = w.id AND n.status IN ('ENQUEUED', 'RUNNING') AND t.is_in_line LIMIT 1), FALSE)
 LIMIT %(most)s)
