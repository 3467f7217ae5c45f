-- What waits and runs in each queue at this moment (D-59), once a minute: who comes later in the same minute finds the row of all
-- queues, `*`, and looks at nothing. Longer spans keep the most of their minutes. In all about `most` waiting tasks are counted,
-- at least 50 of each queue, from its end; and `most` tasks in flight. Answers how many seconds of the minute are left.
WITH RECURSIVE minute AS MATERIALIZED (
    SELECT to_timestamp(floor(extract(epoch FROM now()) / 60) * 60) AS start_at
), is_new AS MATERIALIZED (
    SELECT NOT EXISTS (SELECT FROM horsies_rollup r WHERE r.span = 60 AND r.start_at = (SELECT start_at FROM minute)
                       AND r.queue_name = '*' AND r.task_name = '' AND r.error_code = '') AS is_new
), queue AS (
    (SELECT queue_name FROM horsies_tasks WHERE (SELECT is_new FROM is_new) AND is_waiting ORDER BY queue_name DESC LIMIT 1)
    UNION ALL
    SELECT n.queue_name FROM queue q CROSS JOIN LATERAL (
        SELECT queue_name FROM horsies_tasks WHERE is_waiting AND queue_name < q.queue_name ORDER BY queue_name DESC LIMIT 1
    ) n
), queues AS MATERIALIZED (
    SELECT queue_name FROM queue LIMIT %(queues)s
), waiting AS (
    SELECT q.queue_name, w.number, o.oldest FROM queues q CROSS JOIN LATERAL (
        SELECT count(*) AS number FROM (
            SELECT FROM horsies_tasks WHERE is_waiting AND queue_name = q.queue_name
            ORDER BY queue_name DESC, priority DESC, is_held DESC, enqueued_at DESC, id DESC
            LIMIT (SELECT GREATEST(50, %(most)s::bigint / GREATEST(1, count(*))) FROM queues)
        ) last
    ) w CROSS JOIN LATERAL (
        WITH RECURSIVE level AS (
            (SELECT priority FROM horsies_tasks WHERE is_waiting AND queue_name = q.queue_name
             ORDER BY queue_name DESC, priority DESC LIMIT 1)
            UNION ALL
            SELECT n.priority FROM level l CROSS JOIN LATERAL (
                SELECT priority FROM horsies_tasks WHERE is_waiting AND queue_name = q.queue_name AND priority < l.priority
                ORDER BY queue_name DESC, priority DESC LIMIT 1
            ) n
        )
        SELECT min(t.enqueued_at) AS oldest FROM level l CROSS JOIN (VALUES (FALSE), (TRUE)) AS h(is_held) CROSS JOIN LATERAL (
            SELECT enqueued_at FROM horsies_tasks p
            WHERE is_waiting AND queue_name = q.queue_name AND priority = l.priority AND p.is_held = h.is_held
              AND enqueued_at <= now()
            ORDER BY enqueued_at LIMIT 1
        ) t
    ) o
), running AS (
    SELECT queue_name, count(*) AS number FROM (
        SELECT queue_name, status FROM horsies_tasks WHERE (SELECT is_new FROM is_new) AND claimed
        ORDER BY claimed_by_worker_id LIMIT %(most)s
    ) held WHERE status = 'RUNNING' GROUP BY queue_name
), gauges AS (
    SELECT COALESCE(w.queue_name, r.queue_name) AS queue_name, COALESCE(w.number, 0) AS waiting, COALESCE(r.number, 0) AS running,
           CASE WHEN w.oldest IS NOT NULL THEN extract(epoch FROM now() - GREATEST(w.oldest, '0001-01-01Z')) END::float8 AS oldest
    FROM waiting w FULL JOIN running r ON r.queue_name = w.queue_name
), written AS (
    INSERT INTO horsies_rollup AS r (span, start_at, queue_name, task_name, error_code, waiting, oldest_due_seconds, running)
    SELECT s.span, to_timestamp(floor(extract(epoch FROM m.start_at) / s.span) * s.span), g.queue_name, '', '', g.waiting, g.oldest,
           g.running
    FROM minute m CROSS JOIN unnest(%(spans)s::int[]) AS s(span) CROSS JOIN (
        SELECT queue_name, waiting, oldest, running FROM gauges WHERE queue_name <> '*'
        UNION ALL SELECT '*', COALESCE(sum(waiting), 0), max(oldest), COALESCE(sum(running), 0) FROM gauges
    ) g WHERE (SELECT is_new FROM is_new)
    ORDER BY 1, 2, 3
    ON CONFLICT (span, start_at, queue_name, task_name, error_code) DO UPDATE
    SET waiting = GREATEST(r.waiting, EXCLUDED.waiting), running = GREATEST(r.running, EXCLUDED.running),
        oldest_due_seconds = GREATEST(r.oldest_due_seconds, EXCLUDED.oldest_due_seconds)
    WHERE r.span > 60
)
SELECT 60 - extract(epoch FROM now() - start_at)::float8, (SELECT set_config('synchronous_commit', 'off', TRUE)) FROM minute
