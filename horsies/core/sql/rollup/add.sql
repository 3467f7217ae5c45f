-- Adds what one worker has counted to the statistics (D-59), for each span of time in which the middle of its counting was. In
-- the order of the key, so that workers that write at the same moment do not wait for each other in a circle.
WITH counted AS (
    SELECT s.span, to_timestamp(floor(extract(epoch FROM now() - make_interval(secs => %(age)s)) / s.span) * s.span) AS start_at,
           g.queue_name, g.task_name, g.error_code, g.completed, g.failed, g.retried, g.expired, g.cancelled, g.wait_seconds,
           g.wait_counts, g.run_seconds, g.run_counts, g.example_id
    FROM json_to_recordset(%(groups)s::json) AS g(queue_name text, task_name text, error_code text, completed bigint,
        failed bigint, retried bigint, expired bigint, cancelled bigint, wait_seconds float8, wait_counts bigint[],
        run_seconds float8, run_counts bigint[], example_id text)
    CROSS JOIN unnest(%(spans)s::int[]) AS s(span)
)
INSERT INTO horsies_rollup AS r (span, start_at, queue_name, task_name, error_code, completed, failed, retried, expired, cancelled,
                                 wait_seconds, wait_counts, run_seconds, run_counts, example_id)
SELECT span, start_at, queue_name, task_name, error_code, completed, failed, retried, expired, cancelled, wait_seconds,
       wait_counts, run_seconds, run_counts, example_id
FROM counted ORDER BY span, start_at, queue_name, task_name, error_code
ON CONFLICT (span, start_at, queue_name, task_name, error_code) DO UPDATE
SET completed = r.completed + EXCLUDED.completed, failed = r.failed + EXCLUDED.failed, retried = r.retried + EXCLUDED.retried,
    expired = r.expired + EXCLUDED.expired, cancelled = r.cancelled + EXCLUDED.cancelled,
    wait_seconds = r.wait_seconds + EXCLUDED.wait_seconds, run_seconds = r.run_seconds + EXCLUDED.run_seconds,
    wait_counts = ARRAY(SELECT COALESCE(mine, 0) + COALESCE(theirs, 0) FROM unnest(EXCLUDED.wait_counts, r.wait_counts)
                        WITH ORDINALITY AS u(mine, theirs, place) ORDER BY place),
    run_counts = ARRAY(SELECT COALESCE(mine, 0) + COALESCE(theirs, 0) FROM unnest(EXCLUDED.run_counts, r.run_counts)
                       WITH ORDINALITY AS u(mine, theirs, place) ORDER BY place),
    example_id = COALESCE(EXCLUDED.example_id, r.example_id)
RETURNING (SELECT set_config('synchronous_commit', 'off', TRUE))
