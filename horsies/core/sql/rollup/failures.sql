-- Which tasks failed with which codes (M-45c), the most frequent first, with the last task that failed so, if it still exists.
-- Looks at the newest `most` rows of the time. A trend is the points in which there was any, and how many.
WITH looked AS MATERIALIZED (
    SELECT start_at, task_name, error_code, failed, example_id FROM horsies_rollup
    WHERE span = %(span)s AND start_at >= to_timestamp(%(first_s)s::float8) AND start_at < to_timestamp(%(last_s)s::float8)
    ORDER BY span DESC, start_at DESC LIMIT %(most)s
), points AS MATERIALIZED (
    SELECT task_name, error_code, floor((extract(epoch FROM start_at) - %(first_s)s::float8) / %(step_s)s::float8)::int AS point,
           sum(failed)::bigint AS failed, min(start_at) AS first_at, max(start_at) AS last_at,
           (array_agg(example_id ORDER BY start_at DESC) FILTER (WHERE example_id IS NOT NULL))[1] AS example_id
    FROM looked WHERE failed > 0 GROUP BY 1, 2, 3
), groups AS MATERIALIZED (
    SELECT task_name, error_code, sum(failed)::bigint AS failed, min(first_at) AS first_at, max(last_at) AS last_at,
           array_agg(point) AS points, array_agg(failed) AS numbers,
           (array_agg(example_id ORDER BY point DESC) FILTER (WHERE example_id IS NOT NULL))[1] AS example_id
    FROM points GROUP BY 1, 2
    ORDER BY 3 DESC, 1, 2 LIMIT %(limit)s
)
SELECT g.task_name, g.error_code, g.failed, g.first_at, g.last_at, g.points, g.numbers, e.id, e.ended_at,
       (SELECT CASE WHEN count(*) >= %(most)s THEN min(start_at) END FROM looked) AS cut_at
FROM groups g LEFT JOIN LATERAL (
    SELECT id, ended_at FROM horsies_tasks WHERE id = g.example_id AND status = 'FAILED' OFFSET 0
) e ON TRUE
ORDER BY g.failed DESC, g.task_name, g.error_code
