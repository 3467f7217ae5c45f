-- The first tasks that wait in each of these queues, by queue and name: how many there are, and the ids of some of
-- them. At most `most` tasks of a queue are read, through the index that claims use. Their arguments are not read.
WITH looked_at AS (
    SELECT w.queue_name, t.id, t.task_name, t.place
    FROM unnest(%(queues)s::text[]) AS w(queue_name)
    CROSS JOIN LATERAL (
        SELECT id, task_name, row_number() OVER () AS place
        FROM (
            SELECT id, task_name FROM horsies_tasks
            WHERE is_waiting AND queue_name = w.queue_name
            ORDER BY queue_name, priority, is_held, enqueued_at, id LIMIT %(most)s
        ) first
    ) t
)
SELECT queue_name, task_name, count(*), (array_agg(id ORDER BY place))[1:%(sample)s]
FROM looked_at GROUP BY queue_name, task_name ORDER BY queue_name, task_name
