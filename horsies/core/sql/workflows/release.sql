-- Tasks that were held return to the line of the claims, because these workflows, which are locked, are not PAUSED any more
-- (F-52): at most `most`. The workers of their queues are told.
WITH locked AS (
    SELECT ctid AS at FROM horsies_tasks WHERE is_held AND is_waiting AND workflow_id = ANY(%(ids)s::text[])
    ORDER BY id LIMIT %(most)s FOR UPDATE
), moved AS (
    UPDATE horsies_tasks t SET is_held = FALSE FROM locked l WHERE t.ctid = l.at RETURNING t.id, t.queue_name
), rung AS (
    SELECT count(horsies_ring(q.queue_name, q.id, NULL)) AS queues
    FROM (SELECT DISTINCT ON (queue_name) queue_name, id FROM moved ORDER BY queue_name, id) q
)
SELECT (SELECT count(*) FROM moved), queues FROM rung
