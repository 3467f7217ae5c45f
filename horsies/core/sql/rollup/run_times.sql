-- How long tasks of these names ran within `window` (D-59): how many runs are in each bucket, counted from 1. Looks at the newest
-- `most` rows of hours, of all names: no index has the names in front.
WITH looked AS MATERIALIZED (
    SELECT task_name, run_counts FROM horsies_rollup
    WHERE span = 3600 AND start_at > now() - %(window)s::interval ORDER BY span DESC, start_at DESC LIMIT %(most)s
)
SELECT l.task_name, c.bucket, sum(c.number)::bigint
FROM looked l CROSS JOIN LATERAL unnest(l.run_counts) WITH ORDINALITY AS c(number, bucket)
WHERE l.task_name = ANY(%(task_names)s::text[]) AND c.number > 0
GROUP BY l.task_name, c.bucket
