-- CLAIMED → PENDING (L-13), and RUNNING → PENDING for a task whose code was never called (L-13a): the claim ends, and
-- nothing else changes but what the move brings along: a delay and a reason (R-50), a counter (R-51), a failed start (R-102).
-- The bell is rung for what is due, as the trigger rings only for inserts (L-21), and for the first of each queue that is due
-- later: workers that sleep ask then when to look (T-80).
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[], %(delays)s::float8[], %(reasons)s::text[], %(failed_starts)s::int[],
                         %(counters)s::int[])
             AS w(id, claim_seq, delay, reason, failed_start, counter)
    ORDER BY id
), locked AS (
    SELECT t.id, w.delay, w.reason, w.failed_start, w.counter FROM wanted w CROSS JOIN LATERAL (
        SELECT id FROM horsies_tasks
        WHERE id = w.id AND claim_seq = w.claim_seq AND status IN ('CLAIMED', 'RUNNING')
          AND claimed_by_worker_id = %(worker_id)s
        FOR UPDATE
    ) t
), moved AS (
    UPDATE horsies_tasks t
    SET status = 'PENDING', claimed = FALSE, claimed_at = NULL, claimed_by_worker_id = NULL, claim_expires_at = NULL,
        finalizing_at = NULL, recovery_enrolled = FALSE,
        enqueued_at = COALESCE(now() + make_interval(secs => l.delay), t.enqueued_at),
        failed_reason = COALESCE(l.reason, t.failed_reason), start_failures = t.start_failures + l.failed_start,
        retry_count = COALESCE(l.counter, t.retry_count),
        started_at = NULL, worker_pid = NULL, worker_hostname = NULL, worker_process_name = NULL, updated_at = now()
    FROM locked l WHERE t.id = l.id AND t.id = ANY(%(ids)s::text[])
    RETURNING t.id, t.queue_name, t.enqueued_at
)
SELECT id, CASE WHEN enqueued_at <= now() OR row_number() OVER (PARTITION BY queue_name ORDER BY enqueued_at, id) = 1
                THEN horsies_ring(queue_name, id, %(worker_id)s) END FROM moved
