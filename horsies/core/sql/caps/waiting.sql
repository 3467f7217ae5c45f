-- Whether a task is due in one of these queues: a worker that found none there may have met a full cap. From priority to
-- priority, as in `claim`.
SELECT EXISTS (
    SELECT FROM unnest(%(queues)s::text[]) AS q(name) CROSS JOIN LATERAL (
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
            WHERE is_waiting AND queue_name = q.name AND priority = l.priority AND enqueued_at <= statement_timestamp()
            ORDER BY queue_name DESC, priority DESC, enqueued_at DESC LIMIT 1
        ) d LIMIT 1
    ) t
)
