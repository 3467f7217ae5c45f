-- The values that tasks can be filtered by (M-45): the most frequent ones, with their counts. The tasks are grouped by
-- all four columns first, which the server can do in parallel; the result of that is small.
WITH found AS (
    SELECT task_name, queue_name, claimed_by_worker_id, error_code, count(*) AS n FROM horsies_tasks
    WHERE (%(task_names)s::text[] IS NULL OR task_name = ANY(%(task_names)s::text[]))
  AND (%(queues)s::text[] IS NULL OR queue_name = ANY(%(queues)s::text[]))
  AND (%(workers)s::text[] IS NULL OR claimed_by_worker_id = ANY(%(workers)s::text[]))
  AND (%(statuses)s::text[] IS NULL OR status = ANY(%(statuses)s::text[]))
  AND (%(codes)s::text[] IS NULL OR error_code = ANY(%(codes)s::text[]))
  AND (%(codes_other_than)s::text[] IS NULL OR (error_code IS NOT NULL AND error_code <> ALL(%(codes_other_than)s::text[])))
  AND (NOT %(retried_only)s OR retry_count > 0)
  AND (NOT %(only_waiting)s OR is_waiting) AND (NOT %(only_in_flight)s OR claimed)
  AND (NOT %(only_ended)s OR ended_at IS NOT NULL)
    GROUP BY task_name, queue_name, claimed_by_worker_id, error_code
), facets AS (
    SELECT CASE GROUPING(task_name, queue_name, claimed_by_worker_id, error_code)
               WHEN 7 THEN 'task_names' WHEN 11 THEN 'queues' WHEN 13 THEN 'workers' ELSE 'error_codes' END AS facet,
           COALESCE(task_name, queue_name, claimed_by_worker_id, error_code) AS value, sum(n)::bigint AS n
    FROM found GROUP BY GROUPING SETS ((task_name), (queue_name), (claimed_by_worker_id), (error_code))
), placed AS (
    SELECT facet, value, n, row_number() OVER (PARTITION BY facet ORDER BY n DESC, value) AS place
    FROM facets WHERE value IS NOT NULL
)
SELECT facet, value, n FROM placed WHERE place <= %(most)s ORDER BY facet, place
