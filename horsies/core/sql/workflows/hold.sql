-- Waiting tasks of these workflows, which are locked and PAUSED, leave the line of the claims (F-50). Walks through at most
-- `most` nodes in flight, those behind node `index` of workflow `flow`, and returns the last of them if there may be more. A
-- task that somebody has locked is left, for example because a claim looks at it.
WITH walked AS (
    SELECT n.workflow_id, n.task_index, n.task_id
    FROM (SELECT id FROM unnest(%(ids)s::text[]) AS f(id) WHERE id >= %(flow)s::text ORDER BY id) f CROSS JOIN LATERAL (
        -- What a part has held stays in this index, so without a place to go on from, each would walk past all before it.
        SELECT workflow_id, task_index, task_id FROM horsies_workflow_tasks
        WHERE workflow_id = f.id AND status IN ('ENQUEUED', 'RUNNING')
          AND task_index > CASE WHEN f.id = %(flow)s::text THEN %(index)s::int ELSE -1 END
        ORDER BY task_index LIMIT %(most)s
    ) n LIMIT %(most)s
), locked AS (
    -- One by one, and only those that are worth it: running tasks are not locked.
    SELECT t.at FROM (
        SELECT c.id FROM walked w CROSS JOIN LATERAL (
            SELECT id, is_waiting AND NOT is_held AS is_in_line FROM horsies_tasks WHERE id = w.task_id OFFSET 0
        ) c WHERE c.is_in_line ORDER BY c.id
    ) c CROSS JOIN LATERAL (
        SELECT ctid AS at, is_waiting AND NOT is_held AS is_in_line FROM horsies_tasks WHERE id = c.id
        OFFSET 0 FOR UPDATE SKIP LOCKED
    ) t WHERE t.is_in_line
), moved AS (
    UPDATE horsies_tasks t SET is_held = TRUE FROM locked l WHERE t.ctid = l.at RETURNING t.id
)
SELECT l.workflow_id, l.task_index, m.tasks FROM (SELECT count(*) AS tasks FROM moved) m LEFT JOIN (
    SELECT workflow_id, task_index FROM walked WHERE (SELECT count(*) FROM walked) >= %(most)s
    ORDER BY workflow_id DESC, task_index DESC LIMIT 1
) l ON TRUE
