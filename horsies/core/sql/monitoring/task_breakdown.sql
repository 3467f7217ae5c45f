-- Tasks by worker, name or queue and their states, the largest groups first. Each row also has the number of all groups
-- and of all tasks (M-45).
WITH found AS (
    SELECT CASE %(group_by)s::text WHEN 'worker' THEN claimed_by_worker_id WHEN 'task_name' THEN task_name ELSE queue_name END
               AS value, status, count(*) AS n
    FROM horsies_tasks
    WHERE (%(task_names)s::text[] IS NULL OR task_name = ANY(%(task_names)s::text[]))
  AND (%(queues)s::text[] IS NULL OR queue_name = ANY(%(queues)s::text[]))
  AND (%(workers)s::text[] IS NULL OR claimed_by_worker_id = ANY(%(workers)s::text[]))
  AND (%(statuses)s::text[] IS NULL OR status = ANY(%(statuses)s::text[]))
  AND (%(codes)s::text[] IS NULL OR error_code = ANY(%(codes)s::text[]))
  AND (%(codes_other_than)s::text[] IS NULL OR (error_code IS NOT NULL AND error_code <> ALL(%(codes_other_than)s::text[])))
  AND (NOT %(retried_only)s OR retry_count > 0)
  AND (NOT %(only_waiting)s OR is_waiting) AND (NOT %(only_in_flight)s OR claimed)
  AND (NOT %(only_ended)s OR ended_at IS NOT NULL)
    GROUP BY 1, 2
)
SELECT value, sum(n)::bigint AS total, jsonb_object_agg(status, n), count(*) OVER (), (sum(sum(n)) OVER ())::bigint
FROM found GROUP BY value ORDER BY total DESC, value LIMIT %(limit)s
