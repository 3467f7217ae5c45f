-- Waiting tasks of these queues by name: how many there are, how many of them may be claimed now, and whether the queue has
-- more than these. At most `most` tasks of each queue are read, from its end; NULL means all of them.
SELECT q.name, t.task_name, count(*), count(*) FILTER (WHERE t.is_due), COALESCE(bool_or(t.is_last), FALSE)
FROM unnest(%(queues)s::text[]) AS q(name) CROSS JOIN LATERAL (
    SELECT task_name, is_due, row_number() OVER () = %(most)s::bigint AS is_last
    FROM (
        SELECT task_name, enqueued_at <= now() AND (next_retry_at IS NULL OR next_retry_at <= now()) AS is_due
        FROM horsies_tasks WHERE is_waiting AND queue_name = q.name
        ORDER BY queue_name DESC, priority DESC, is_held DESC, enqueued_at DESC, id DESC LIMIT %(most)s
    ) last
) t
GROUP BY q.name, t.task_name
