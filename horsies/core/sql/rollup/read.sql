-- Statistics for charts (M-45b): one row for each point in which there was anything. Looks at the newest `most` rows of the time.
-- Of gauges, the most within a point counts, and queues are added up; without a choice of queues there is a row for all of them,
-- which also says that somebody looked. Histograms are added up bucket by bucket: to unnest them takes three times as long.
WITH cut AS MATERIALIZED (
    SELECT (
        SELECT start_at FROM horsies_rollup
        WHERE span = %(span)s AND start_at >= to_timestamp(%(first_s)s::float8) AND start_at < to_timestamp(%(last_s)s::float8)
        ORDER BY span DESC, start_at DESC OFFSET %(most)s - 1 LIMIT 1
    ) AS cut_at
), found AS MATERIALIZED (
    SELECT floor((extract(epoch FROM start_at) - %(first_s)s::float8) / %(step_s)s::float8)::int AS point, queue_name,
           task_name = '' AS is_gauge, completed, failed, retried, expired, cancelled, wait_counts, run_counts, waiting,
           oldest_due_seconds, running
    FROM horsies_rollup
    WHERE span = %(span)s AND start_at < to_timestamp(%(last_s)s::float8)
      AND start_at >= GREATEST(to_timestamp(%(first_s)s::float8), (SELECT cut_at FROM cut))
      AND (%(queues)s::text[] IS NULL OR queue_name = ANY(%(queues)s::text[]) OR (task_name = '' AND queue_name = '*'))
      AND (%(task_names)s::text[] IS NULL OR task_name = '' OR task_name = ANY(%(task_names)s::text[]))
), ends AS (
    SELECT point, sum(completed)::bigint AS completed, sum(failed)::bigint AS failed, sum(retried)::bigint AS retried,
           sum(expired)::bigint AS expired, sum(cancelled)::bigint AS cancelled, ARRAY[
               sum(wait_counts[1]), sum(wait_counts[2]), sum(wait_counts[3]), sum(wait_counts[4]), sum(wait_counts[5]),
               sum(wait_counts[6]), sum(wait_counts[7]), sum(wait_counts[8]), sum(wait_counts[9]), sum(wait_counts[10]),
               sum(wait_counts[11]), sum(wait_counts[12]), sum(wait_counts[13]), sum(wait_counts[14]), sum(wait_counts[15]),
               sum(wait_counts[16]), sum(wait_counts[17]), sum(wait_counts[18]), sum(wait_counts[19]), sum(wait_counts[20]),
               sum(wait_counts[21]), sum(wait_counts[22]), sum(wait_counts[23]), sum(wait_counts[24]), sum(wait_counts[25]),
               sum(wait_counts[26]), sum(wait_counts[27]), sum(wait_counts[28]), sum(wait_counts[29]), sum(wait_counts[30]),
               sum(wait_counts[31]), sum(wait_counts[32]), sum(wait_counts[33]), sum(wait_counts[34]), sum(wait_counts[35]),
               sum(wait_counts[36]), sum(wait_counts[37]), sum(wait_counts[38]), sum(wait_counts[39]), sum(wait_counts[40]),
               sum(wait_counts[41]), sum(wait_counts[42]), sum(wait_counts[43]), sum(wait_counts[44]), sum(wait_counts[45]),
               sum(wait_counts[46]), sum(wait_counts[47]), sum(wait_counts[48]), sum(wait_counts[49]), sum(wait_counts[50]),
               sum(wait_counts[51]), sum(wait_counts[52]), sum(wait_counts[53]), sum(wait_counts[54]), sum(wait_counts[55]),
               sum(wait_counts[56]), sum(wait_counts[57]), sum(wait_counts[58]), sum(wait_counts[59]), sum(wait_counts[60]),
               sum(wait_counts[61])
           ]::bigint[] AS waits, ARRAY[
               sum(run_counts[1]), sum(run_counts[2]), sum(run_counts[3]), sum(run_counts[4]), sum(run_counts[5]),
               sum(run_counts[6]), sum(run_counts[7]), sum(run_counts[8]), sum(run_counts[9]), sum(run_counts[10]),
               sum(run_counts[11]), sum(run_counts[12]), sum(run_counts[13]), sum(run_counts[14]), sum(run_counts[15]),
               sum(run_counts[16]), sum(run_counts[17]), sum(run_counts[18]), sum(run_counts[19]), sum(run_counts[20]),
               sum(run_counts[21]), sum(run_counts[22]), sum(run_counts[23]), sum(run_counts[24]), sum(run_counts[25]),
               sum(run_counts[26]), sum(run_counts[27]), sum(run_counts[28]), sum(run_counts[29]), sum(run_counts[30]),
               sum(run_counts[31]), sum(run_counts[32]), sum(run_counts[33]), sum(run_counts[34]), sum(run_counts[35]),
               sum(run_counts[36]), sum(run_counts[37]), sum(run_counts[38]), sum(run_counts[39]), sum(run_counts[40]),
               sum(run_counts[41]), sum(run_counts[42]), sum(run_counts[43]), sum(run_counts[44]), sum(run_counts[45]),
               sum(run_counts[46]), sum(run_counts[47]), sum(run_counts[48]), sum(run_counts[49]), sum(run_counts[50]),
               sum(run_counts[51]), sum(run_counts[52]), sum(run_counts[53]), sum(run_counts[54]), sum(run_counts[55]),
               sum(run_counts[56]), sum(run_counts[57]), sum(run_counts[58]), sum(run_counts[59]), sum(run_counts[60]),
               sum(run_counts[61])
           ]::bigint[] AS runs
    FROM found WHERE NOT is_gauge GROUP BY point
), gauges AS (
    SELECT point, COALESCE(sum(waiting) FILTER (WHERE is_match), 0)::bigint AS waiting, max(oldest) FILTER (WHERE is_match) AS oldest,
           COALESCE(sum(running) FILTER (WHERE is_match), 0)::bigint AS running
    FROM (
        SELECT point, COALESCE(queue_name = ANY(%(queues)s::text[]), queue_name = '*') AS is_match, max(waiting) AS waiting,
               max(oldest_due_seconds) AS oldest, max(running) AS running
        FROM found WHERE is_gauge GROUP BY point, queue_name
    ) queues GROUP BY point
)
SELECT p.point, e.completed, e.failed, e.retried, e.expired, e.cancelled, e.waits, e.runs, g.waiting, g.oldest, g.running,
       (SELECT cut_at FROM cut)
FROM (SELECT point FROM ends UNION SELECT point FROM gauges) p
LEFT JOIN ends e ON e.point = p.point LEFT JOIN gauges g ON g.point = p.point
