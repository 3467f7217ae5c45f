-- How many tasks wait in each of these queues, how many of them are due, and whether there are more: at most `most` of each are
-- counted, from the end of the queue. All of it is in the index; the table is visited only where it has just changed.
SELECT q.name, t.number, t.due, t.number = %(most)s
FROM unnest(%(queues)s::text[]) AS q(name) CROSS JOIN LATERAL (
    SELECT count(*) AS number, count(*) FILTER (WHERE enqueued_at <= now()) AS due
    FROM (
        SELECT enqueued_at FROM horsies_tasks WHERE is_waiting AND queue_name = q.name
        ORDER BY queue_name DESC, priority DESC, is_held DESC, enqueued_at DESC, id DESC LIMIT %(most)s
    ) last
) t
