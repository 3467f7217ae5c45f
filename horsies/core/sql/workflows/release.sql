-- Tasks that were held return to the line of the claims, because these workflows, which are locked, are not PAUSED any more
-- (F-52): at most `most`, those behind `task` of workflow `flow`; returns the last of them if there may be more. The workers of
-- their queues are told.
WITH found AS (
    SELECT h.workflow_id, h.id
    FROM (SELECT id FROM unnest(%(ids)s::text[]) AS f(id) WHERE id >= %(flow)s::text ORDER BY id) f CROSS JOIN LATERAL (
        SELECT workflow_id, id FROM horsies_tasks
        WHERE is_held AND is_waiting AND workflow_id = f.id AND id > CASE WHEN f.id = %(flow)s::text THEN %(task)s::text ELSE '' END
        ORDER BY id LIMIT %(most)s
    ) h LIMIT %(most)s
), locked AS (
    -- One by one: planned together, they could be looked for among everything that is held.
    SELECT t.at FROM (SELECT id FROM found ORDER BY id) f CROSS JOIN LATERAL (
        SELECT ctid AS at, is_held AND is_waiting AS is_held FROM horsies_tasks WHERE id = f.id OFFSET 0 FOR UPDATE
    ) t WHERE t.is_held
), moved AS (
    UPDATE horsies_tasks t SET is_held = FALSE FROM locked l WHERE t.ctid = l.at RETURNING t.id, t.queue_name
), rung AS (
    SELECT count(horsies_ring(q.queue_name, q.id, NULL)) AS queues
    FROM (SELECT DISTINCT ON (queue_name) queue_name, id FROM moved ORDER BY queue_name, id) q
)
SELECT l.workflow_id, l.id, rung.queues FROM rung LEFT JOIN (
    SELECT workflow_id, id FROM found WHERE (SELECT count(*) FROM found) >= %(most)s
    ORDER BY workflow_id DESC, id DESC LIMIT 1
) l ON TRUE
