-- The worker is busy again and needs no notifications. What it was woken for it may have left: if anything waits in its
-- queues, even for later (T-80), another idle worker is woken. That function looks when the mark is gone, because the main
-- part waits for the other one.
WITH withdrawn AS (
    DELETE FROM horsies_waiting WHERE topic = 'worker' AND holder = %(worker_id)s RETURNING topic
)
SELECT horsies_wake_workers(q.name, 1, %(worker_id)s, 'more')
FROM (SELECT count(*) FROM withdrawn) gone CROSS JOIN unnest(%(queues)s::text[]) AS q(name)
WHERE (SELECT TRUE FROM horsies_tasks WHERE is_waiting AND queue_name = q.name
       ORDER BY queue_name DESC, priority DESC LIMIT 1)
