-- The queues in which tasks wait: a hop from name to name, so that it costs as much as there are such queues, however many tasks
-- wait in them and however many queues are served (W-22a). Backwards, as in `claim`.
WITH RECURSIVE busy AS (
    (SELECT queue_name FROM horsies_tasks WHERE is_waiting ORDER BY queue_name DESC LIMIT 1)
    UNION ALL
    SELECT n.queue_name FROM busy b CROSS JOIN LATERAL (
        SELECT queue_name FROM horsies_tasks WHERE is_waiting AND queue_name < b.queue_name ORDER BY queue_name DESC LIMIT 1
    ) n
)
SELECT queue_name FROM busy
