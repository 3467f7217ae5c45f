-- Tasks of one queue that wait and belong to no workflow, there for longer than `age`, in the order in which they are claimed.
-- Looks at `most` rows at most, from the one after (`priority`, `enqueued_at`, `after_id`) on, and tells of each whether it
-- is chosen: an empty list of names chooses all. No answer means that there are no more.
SELECT id, task_name, priority, enqueued_at::text AS due,
       workflow_id IS NULL AND created_at <= now() - %(age)s::interval
           AND (task_name = ANY(%(task_names)s::text[]) OR cardinality(%(task_names)s::text[]) = 0) AS is_chosen
FROM (
    -- Two parts, because between priority and time the index has `is_held`, which only tasks of workflows can be.
    (SELECT * FROM horsies_tasks
     WHERE is_waiting AND NOT is_held AND queue_name = %(queue)s AND priority = %(priority)s::int
       AND (enqueued_at, id) > (%(enqueued_at)s::timestamptz, %(after_id)s::text)
     ORDER BY enqueued_at, id LIMIT %(most)s)
    UNION ALL
    (SELECT * FROM horsies_tasks
     WHERE is_waiting AND NOT is_held AND queue_name = %(queue)s AND priority > %(priority)s::int
     ORDER BY priority, enqueued_at, id LIMIT %(most)s)
) t
ORDER BY priority, enqueued_at, id LIMIT %(most)s
