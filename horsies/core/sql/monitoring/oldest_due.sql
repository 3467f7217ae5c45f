-- For how long the oldest due task of each of these queues has been due, in seconds. A queue is walked from priority to
-- priority, as a claim does, and the first task of each is read.
SELECT q.name, extract(epoch FROM now() - GREATEST(min(f.enqueued_at), '0001-01-01Z'))::float8
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
    SELECT t.enqueued_at FROM level l CROSS JOIN LATERAL (
        SELECT enqueued_at FROM horsies_tasks
        WHERE is_waiting AND queue_name = q.name AND priority = l.priority AND enqueued_at <= now()
        ORDER BY enqueued_at LIMIT 1
    ) t
) f
GROUP BY q.name
