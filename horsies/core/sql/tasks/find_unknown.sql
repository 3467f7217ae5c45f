-- Of each priority in these queues, the next `look` tasks after a place that have been due for longer than `grace`: those with a name that is
-- none of `names`, those of the worker that looks (O-31), and the last one, after which the next look continues if there were so many.
SELECT q.name, l.priority, w.enqueued_at::text, w.id, w.task_name, w.nth = %(look)s, w.task_name <> ALL(%(names)s::text[])
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
    SELECT priority FROM level
) l
LEFT JOIN LATERAL (
    SELECT c.at, c.id FROM unnest(%(at_queues)s::text[], %(at_priorities)s::int[], %(ats)s::timestamptz[], %(at_ids)s::text[])
                           AS c(queue, priority, at, id)
    WHERE c.queue = q.name AND c.priority = l.priority
) c ON TRUE
CROSS JOIN LATERAL (
    SELECT *, row_number() OVER (ORDER BY enqueued_at, id) AS nth FROM (
        SELECT enqueued_at, id, task_name FROM horsies_tasks
        WHERE is_waiting AND NOT is_held AND queue_name = q.name AND priority = l.priority
          AND enqueued_at <= now() - make_interval(secs => %(grace)s)
          AND (enqueued_at, id) > (COALESCE(c.at, '-infinity'), COALESCE(c.id, ''))
        ORDER BY enqueued_at, id LIMIT %(look)s
    ) next
) w
WHERE w.nth = %(look)s OR w.task_name <> ALL(%(names)s::text[])
ORDER BY q.name, l.priority, w.nth
