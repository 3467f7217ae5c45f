-- How many seconds from now the next task of these queues falls due, of those that are not due yet (T-80). Only within
-- `within` seconds, because the worker looks again by then. NULL: none does. From priority to priority, as in `claim`.
SELECT min(extract(epoch FROM t.enqueued_at - statement_timestamp()))::float8
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
    SELECT d.enqueued_at FROM level l CROSS JOIN LATERAL (
        SELECT enqueued_at FROM horsies_tasks
        WHERE is_waiting AND NOT is_held AND queue_name = q.name AND priority = l.priority AND enqueued_at > statement_timestamp()
          AND enqueued_at <= statement_timestamp() + make_interval(secs => %(within)s::float8)
        ORDER BY queue_name, priority, enqueued_at LIMIT 1
    ) d
) t
