-- The line of each queue, for a worker that leaves tasks of other names than its `names` to others (O-31): of each priority the
-- next `look` due tasks after the place where the last look has ended. How many there are, which is the first with one of the
-- names, the last place before that one, the last place of all; and the other names, with a task of one of them. This bounds what
-- the claim after it has to pass, however many such tasks stand in front.
SELECT q.name, l.priority, count(*), min(w.first), max(w.enqueued_at::text) FILTER (WHERE w.nth = COALESCE(w.first - 1, w.count)),
       max(w.id) FILTER (WHERE w.nth = COALESCE(w.first - 1, w.count)), max(w.enqueued_at::text) FILTER (WHERE w.nth = w.count),
       max(w.id) FILTER (WHERE w.nth = w.count), array_agg(DISTINCT w.task_name) FILTER (WHERE NOT w.is_known),
       min(w.id) FILTER (WHERE NOT w.is_known)
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
    SELECT *, min(nth) FILTER (WHERE is_known) OVER () AS first, count(*) OVER () AS count FROM (
        SELECT *, task_name = ANY(%(names)s::text[]) AS is_known, row_number() OVER (ORDER BY enqueued_at, id) AS nth FROM (
            SELECT enqueued_at, id, task_name FROM horsies_tasks
            WHERE is_waiting AND NOT is_held AND queue_name = q.name AND priority = l.priority
              AND enqueued_at <= statement_timestamp()
              AND (enqueued_at, id) > (COALESCE(c.at, '-infinity'), COALESCE(c.id, ''))
            ORDER BY enqueued_at, id LIMIT %(look)s
        ) next
    ) counted
) w
GROUP BY q.name, l.priority
