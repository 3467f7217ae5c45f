-- What these workers hold, the oldest claim first, from the one after (`after`, `after_id`) on (R-44). Nothing is locked: hooks
-- are asked next, and they take time. Claims made after `before`, when the sweep began, are not its business. Of workers that
-- are not registered only enrolled tasks count (R-45).
-- The columns of `InFlight`, then: is it deferred, because its result is being written or its child still beats (R-47), or
-- because it has not been silent for as long as it takes (R-68)? A NULL in the place of a limit defers nothing.
WITH gone AS (
    SELECT * FROM unnest(%(ids)s::text[], %(thresholds)s::float8[], %(finalizing)s::float8[], %(silences)s::float8[],
                         %(enrolled_only)s::bool[])
             AS g(id, threshold, finalizing, silence, enrolled_only)
), held AS (
    SELECT t.*, g.threshold, g.finalizing, g.silence
    FROM gone g CROSS JOIN LATERAL (
        SELECT id, claim_seq, claimed_by_worker_id, status, task_name, queue_name, task_options, retry_count, max_retries,
               good_until, workflow_id, recovery_enrolled, claimed_at, started_at, finalizing_at, worker_hostname, worker_pid,
               worker_process_name
        FROM horsies_tasks
        WHERE claimed AND claimed_by_worker_id = g.id AND status IN ('CLAIMED', 'RUNNING')
          AND (recovery_enrolled OR NOT g.enrolled_only)
          AND COALESCE(claimed_at, '-infinity') <= %(before)s::timestamptz
          AND (COALESCE(claimed_at, '-infinity'), id) > (%(after)s::timestamptz, %(after_id)s::text)
        OFFSET 0  -- looked up for each worker: a join could be planned as a walk through the whole table
    ) t
    ORDER BY COALESCE(t.claimed_at, '-infinity'), t.id LIMIT %(most)s
)
SELECT h.id, h.claim_seq, h.claimed_by_worker_id, h.status, h.task_name, h.queue_name, h.task_options, h.retry_count,
       h.max_retries, COALESCE(h.good_until <= now(), FALSE), h.workflow_id, h.recovery_enrolled,
       h.started_at, h.worker_hostname, h.worker_pid, h.worker_process_name, s.heartbeat,
       COALESCE(extract(epoch FROM now() - CASE WHEN isfinite(GREATEST(s.begun, s.heartbeat)) THEN GREATEST(s.begun, s.heartbeat) END)::float8, 0),
       (SELECT count(*) FROM horsies_task_attempts a WHERE a.task_id = h.id AND a.outcome = 'WORKER_FAILURE'),
       COALESCE(h.status = 'RUNNING' AND (h.finalizing_at > now() - make_interval(secs => h.finalizing)
                                          OR s.heartbeat > now() - make_interval(secs => h.threshold)), FALSE)
       OR COALESCE(GREATEST(s.begun, h.claimed_at, s.heartbeat) >= now() - make_interval(secs => h.silence), FALSE),
       COALESCE(h.claimed_at, '-infinity')::text
FROM held h CROSS JOIN LATERAL (
    SELECT b.begun, (
        -- Of this run: a heartbeat of an earlier one says nothing about this worker.
        SELECT sent_at FROM horsies_heartbeats
        WHERE task_id = h.id AND role = CASE h.status WHEN 'RUNNING' THEN 'runner' ELSE 'claimer' END
          AND sent_at >= COALESCE(b.begun, '-infinity')
        ORDER BY sent_at DESC LIMIT 1) AS heartbeat
    FROM (SELECT CASE h.status WHEN 'RUNNING' THEN h.started_at ELSE h.claimed_at END AS begun) b
    OFFSET 0  -- else the look for the heartbeat is repeated wherever it is named
) s
ORDER BY COALESCE(h.claimed_at, '-infinity'), h.id
