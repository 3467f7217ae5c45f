-- For how long the oldest due task of each of these queues has been due, in seconds, and its id. A queue is walked from priority to
-- priority, as a claim does, and the first task of each is read.
SELECT q.name, extract(epoch FROM now() - GREATEST(min(f.enqueued_at), '0001-01-01Z'))::float8,
       (array_agg(f.id ORDER BY f.enqueued_at, f.id))[1]
FROM unnest(%(queues)s::text[]) AS q(name) CROSS JOIN LATERAL (
    WITH RECURSIVE level AS (
        (SELECT priority FROM horsies_tasks WHERE is_waiting AND queue_name = q.name
         ORDER BY queue_name DESC, priority DESC LIMIT 1)
        UNION ALL
        SELECT n.priority FROM level l CROSS JOIN LATERAL (
            SELECT priority FROM horsies_tasks WHERE is_waiting AND queue_name = q.name AND priority < l.priority
            ORDER BY queue_name DESC, priority DESC LIMIT 1
        ) n
    )
    -- Tasks of paused workflows wait too; in the index they come after the others of their priority.
    SELECT t.enqueued_at, t.id FROM level l CROSS JOIN (VALUES (FALSE), (TRUE)) AS h(is_held) CROSS JOIN LATERAL (
        SELECT enqueued_at, id FROM horsies_tasks p
        WHERE is_waiting AND queue_name = q.name AND priority = l.priority AND p.is_held = h.is_held AND enqueued_at <= now()
        ORDER BY enqueued_at LIMIT 1
    ) t
) f
GROUP BY q.name
