-- What a purge would delete (see prune.sql), counted by status, queue and name. Looks at `most` rows at most, from the one
-- after (`after`, `after_id`) on; each row of the answer also says where to go on, and a count of 0 that nothing of what
-- was looked at is chosen. No answer means that there are no more.
WITH looked AS (
    SELECT id, ended_at, status, queue_name, task_name, workflow_id FROM horsies_tasks
    WHERE ended_at IS NOT NULL AND ended_at < now() - %(age)s::interval
      AND (ended_at, id) > (%(after)s::timestamptz, %(after_id)s::text)
    ORDER BY ended_at, id LIMIT %(most)s
), chosen AS (
    SELECT status, queue_name, task_name, count(*) AS count FROM looked
    WHERE (workflow_id IS NULL OR %(with_workflows)s)
      AND (status = ANY(%(statuses)s::text[]) OR cardinality(%(statuses)s::text[]) = 0)
      AND (queue_name = ANY(%(queues)s::text[]) OR cardinality(%(queues)s::text[]) = 0)
      AND (task_name = ANY(%(task_names)s::text[]) OR cardinality(%(task_names)s::text[]) = 0)
    GROUP BY status, queue_name, task_name
), last AS (
    SELECT ended_at::text AS place, id FROM looked ORDER BY ended_at DESC, id DESC LIMIT 1
)
SELECT last.place, last.id, status, queue_name, task_name, COALESCE(count, 0) FROM last LEFT JOIN chosen ON TRUE
