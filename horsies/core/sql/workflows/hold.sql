-- Waiting tasks of these workflows, which are locked and PAUSED, leave the line of the claims (F-50): at most `most`. A task that
-- somebody has locked is left, for example because a claim looks at it.
WITH locked AS (
    SELECT ctid AS at FROM horsies_tasks
    WHERE is_waiting AND NOT is_held AND id = ANY(ARRAY(
        SELECT w.id FROM unnest(%(ids)s::text[]) AS f(id) CROSS JOIN LATERAL (
            SELECT task_id FROM horsies_workflow_tasks
            WHERE workflow_id = f.id AND status IN ('ENQUEUED', 'RUNNING') AND task_id IS NOT NULL OFFSET 0
        ) n CROSS JOIN LATERAL (
            SELECT id, is_waiting, is_held FROM horsies_tasks WHERE id = n.task_id OFFSET 0
        ) w WHERE w.is_waiting AND NOT w.is_held LIMIT %(most)s
    )) ORDER BY id FOR UPDATE SKIP LOCKED
)
UPDATE horsies_tasks t SET is_held = TRUE FROM locked l WHERE t.ctid = l.at
RETURNING t.id
