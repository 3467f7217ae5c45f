-- The tasks with this idempotency key (T-57), at most one of each name. Without a choice of names, the statement jumps from name to
-- name along the index, over at most `most` of them.
WITH RECURSIVE named AS (
    (SELECT task_name FROM horsies_tasks WHERE %(task_names)s::text[] IS NULL AND idempotency_key IS NOT NULL
     ORDER BY task_name LIMIT 1)
    UNION ALL
    SELECT n.task_name FROM named l CROSS JOIN LATERAL (
        SELECT task_name FROM horsies_tasks WHERE idempotency_key IS NOT NULL AND task_name > l.task_name ORDER BY task_name LIMIT 1
    ) n
)
SELECT t.id FROM (
    SELECT task_name FROM named UNION ALL SELECT unnest(%(task_names)s::text[]) LIMIT %(most)s
) n CROSS JOIN LATERAL (
    SELECT id FROM horsies_tasks WHERE task_name = n.task_name AND idempotency_key = %(key)s::text OFFSET 0
) t
