-- The queues in which tasks wait, the last `most` by name. The statement jumps from queue to queue along the index of waiting
-- tasks; from its end, because claimed tasks leave their dead entries in front.
WITH RECURSIVE found AS (
    (SELECT queue_name FROM horsies_tasks WHERE is_waiting ORDER BY queue_name DESC LIMIT 1)
    UNION ALL
    SELECT n.queue_name FROM found f CROSS JOIN LATERAL (
        SELECT queue_name FROM horsies_tasks WHERE is_waiting AND queue_name < f.queue_name ORDER BY queue_name DESC LIMIT 1
    ) n
)
SELECT queue_name FROM found LIMIT %(most)s
