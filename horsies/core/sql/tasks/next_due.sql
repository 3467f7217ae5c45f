-- What lies ahead, for a worker that is about to sleep. `due_s`: in how many seconds the next task of these queues falls due,
-- of those that are not due yet (T-80). Only within `within` seconds, because the worker looks again by then. NULL: none does.
-- From priority to priority, as in `claim`. `is_due`: a task of these queues is due now. `is_lapsed`: the lease of a claim has run out (L-06, as in `claim_expired`). Then,
-- for tasks (L-07) and for workflows (R-38), in how many seconds the next deadline passes, 0 if one has passed, NULL if
-- nothing that waits has one; and how many workers were heard of lately.
SELECT min(extract(epoch FROM t.enqueued_at - statement_timestamp()))::float8 AS due_s, COALESCE(bool_or(t.is_due), FALSE) AS is_due,
    (SELECT p.id FROM horsies_tasks p
     WHERE p.claimed AND p.status = 'CLAIMED' AND p.claim_expires_at < statement_timestamp() AND p.queue_name = ANY(%(served)s::text[])
       AND (p.good_until IS NULL OR p.good_until > statement_timestamp())
       AND (p.workflow_id IS NULL
            OR (SELECT w.status FROM horsies_workflows w WHERE w.id = p.workflow_id) IN ('PENDING', 'RUNNING'))
     LIMIT 1) IS NOT NULL AS is_lapsed,
    -- A far deadline is cut off: it may be infinite, which has no distance.
    (SELECT CASE WHEN good_until > now() THEN extract(epoch FROM LEAST(good_until, now() + interval '1 hour') - now()) ELSE 0 END
     FROM horsies_tasks WHERE is_waiting AND good_until IS NOT NULL ORDER BY good_until LIMIT 1)::float8 AS tasks_s,
    (SELECT CASE WHEN good_until > now() THEN extract(epoch FROM LEAST(good_until, now() + interval '1 hour') - now()) ELSE 0 END
     FROM horsies_workflows WHERE good_until IS NOT NULL AND status IN ('PENDING', 'RUNNING', 'PAUSED')
     ORDER BY good_until, id LIMIT 1)::float8 AS workflows_s,
    (SELECT count(*) FROM horsies_workers WHERE last_heartbeat_at > now() - interval '2 minutes')::int AS workers
FROM unnest(%(queues)s::text[]) AS q(name) CROSS JOIN LATERAL (
    WITH RECURSIVE level AS (
        (SELECT priority FROM horsies_tasks WHERE is_waiting AND queue_name = q.name
         ORDER BY queue_name DESC, priority DESC LIMIT 1)
        UNION ALL
        SELECT n.priority FROM level l CROSS JOIN LATERAL (
            SELECT priority FROM horsies_tasks WHERE is_waiting AND queue_name = q.name AND priority < l.priority
            ORDER BY queue_name DESC, priority DESC LIMIT 1
        ) n
    )
    SELECT d.enqueued_at, (
        SELECT id FROM horsies_tasks
        WHERE is_waiting AND NOT is_held AND queue_name = q.name AND priority = l.priority AND enqueued_at <= statement_timestamp()
        ORDER BY queue_name, priority, enqueued_at LIMIT 1
    ) IS NOT NULL AS is_due
    FROM level l LEFT JOIN LATERAL (
        SELECT enqueued_at FROM horsies_tasks
        WHERE is_waiting AND NOT is_held AND queue_name = q.name AND priority = l.priority AND enqueued_at > statement_timestamp()
          AND enqueued_at <= statement_timestamp() + make_interval(secs => %(within)s::float8)
        ORDER BY queue_name, priority, enqueued_at LIMIT 1
    ) d ON TRUE
) t
