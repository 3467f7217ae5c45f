-- Some of the tasks that wait in a queue, in the order in which they are claimed, with their arguments.
SELECT id, task_name, args, kwargs FROM horsies_tasks
WHERE is_waiting AND queue_name = %(queue)s
ORDER BY queue_name, priority, is_held, enqueued_at, id LIMIT %(most)s OFFSET %(skip)s
