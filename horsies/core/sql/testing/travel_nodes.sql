-- The same for the deadlines of nodes that have no task yet (X-13).
WITH locked AS (
    SELECT id FROM horsies_workflow_tasks
    WHERE good_until IS NOT NULL AND status IN ('PENDING', 'READY') ORDER BY workflow_id, task_index FOR UPDATE
)
UPDATE horsies_workflow_tasks n SET good_until = n.good_until - make_interval(secs => %(seconds)s)
FROM locked l WHERE n.id = l.id
