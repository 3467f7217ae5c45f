-- Statistics for charts (M-45b): one row for each point in which there was anything. Looks at the newest `most` rows of the time.
-- Of gauges, the most within a point counts, and queues are added up; without a choice of queues there is a row for all of them.
WITH looked AS MATERIALIZED (
    SELECT start_at, queue_name, task_name, completed, failed, retried, expired, cancelled, wait_counts, run_counts, waiting,
           oldest_due_seconds, running
    FROM horsies_rollup
    WHERE span = %(span)s AND start_at >= to_timestamp(%(first_s)s::float8) AND start_at < to_timestamp(%(last_s)s::float8)
    ORDER BY span DESC, start_at DESC LIMIT %(most)s
), found AS MATERIALIZED (
    SELECT floor((extract(epoch FROM start_at) - %(first_s)s::float8) / %(step_s)s::float8)::int AS point, *, task_name = '' AS is_gauge,
           CASE WHEN %(queues)s::text[] IS NOT NULL THEN queue_name = ANY(%(queues)s::text[])
                WHEN task_name = '' THEN queue_name = '*' ELSE TRUE END
           AND (task_name = '' OR %(task_names)s::text[] IS NULL OR task_name = ANY(%(task_names)s::text[])) AS is_match
    FROM looked
), ends AS (
    SELECT point, sum(completed)::bigint AS completed, sum(failed)::bigint AS failed, sum(retried)::bigint AS retried,
           sum(expired)::bigint AS expired, sum(cancelled)::bigint AS cancelled
    FROM found WHERE is_match AND NOT is_gauge GROUP BY point
), waits AS (
    SELECT point, array_agg(place::int) AS places, array_agg(number) AS numbers FROM (
        SELECT f.point, n.place, sum(n.number)::bigint AS number
        FROM found f CROSS JOIN unnest(f.wait_counts) WITH ORDINALITY AS n(number, place)
        WHERE f.is_match AND n.number > 0 GROUP BY f.point, n.place
    ) buckets GROUP BY point
), runs AS (
    SELECT point, array_agg(place::int) AS places, array_agg(number) AS numbers FROM (
        SELECT f.point, n.place, sum(n.number)::bigint AS number
        FROM found f CROSS JOIN unnest(f.run_counts) WITH ORDINALITY AS n(number, place)
        WHERE f.is_match AND n.number > 0 GROUP BY f.point, n.place
    ) buckets GROUP BY point
), gauges AS (
    SELECT point, COALESCE(sum(waiting) FILTER (WHERE is_match), 0)::bigint AS waiting, max(oldest) FILTER (WHERE is_match) AS oldest,
           COALESCE(sum(running) FILTER (WHERE is_match), 0)::bigint AS running
    FROM (
        SELECT point, queue_name, is_match, max(waiting) AS waiting, max(oldest_due_seconds) AS oldest, max(running) AS running
        FROM found WHERE is_gauge GROUP BY point, queue_name, is_match
    ) queues GROUP BY point
)
SELECT p.point, e.completed, e.failed, e.retried, e.expired, e.cancelled, w.places, w.numbers, r.places, r.numbers, g.waiting,
       g.oldest, g.running, (SELECT CASE WHEN count(*) >= %(most)s THEN min(start_at) END FROM looked) AS cut_at
FROM (SELECT point FROM ends UNION SELECT point FROM gauges) p
LEFT JOIN ends e ON e.point = p.point LEFT JOIN waits w ON w.point = p.point LEFT JOIN runs r ON r.point = p.point
LEFT JOIN gauges g ON g.point = p.point
