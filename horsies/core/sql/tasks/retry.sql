-- RUNNING → PENDING, to be tried again after its delay (L-12, L-14; not charged against its retries L-16), each with its
-- attempt row.
-- A retry due at or after the deadline is not made and not returned (L-22); nor is a row that someone else recovered.
-- The bell is rung for those that are due at once (L-21), and for the first of each queue that is due later: workers that
-- sleep ask then when to look (T-80).
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[], %(delays)s::float8[], %(charges)s::int[], %(counters)s::int[],
                         %(codes)s::text[], %(messages)s::text[], %(outcomes)s::text[], %(reasons)s::text[])
             AS w(id, claim_seq, delay, charge, counter, error_code, error_message, outcome, reason)
    ORDER BY id
), locked AS (
    SELECT t.id, now() + make_interval(secs => w.delay) AS due, w.charge, w.counter, w.error_code, w.error_message,
           w.outcome, w.reason, t.started_at, t.worker_hostname, t.worker_pid, t.worker_process_name, t.retry_count + 1 AS attempt
    FROM wanted w CROSS JOIN LATERAL (
        SELECT id, started_at, worker_hostname, worker_pid, worker_process_name, retry_count FROM horsies_tasks
        WHERE id = w.id AND claim_seq = w.claim_seq AND status = 'RUNNING' AND claimed_by_worker_id = %(worker_id)s
          AND (good_until IS NULL OR now() + make_interval(secs => w.delay) < good_until)
        FOR UPDATE
    ) t
), moved AS (
    UPDATE horsies_tasks t
    SET status = 'PENDING', retry_count = COALESCE(l.counter, t.retry_count + l.charge), start_failures = 0, enqueued_at = l.due,
        next_retry_at = CASE WHEN l.charge > 0 THEN l.due END,
        failed_reason = COALESCE(l.reason, t.failed_reason),
        claimed = FALSE, claimed_at = NULL, claimed_by_worker_id = NULL, claim_expires_at = NULL, finalizing_at = NULL,
        recovery_enrolled = FALSE,
        started_at = NULL, worker_pid = NULL, worker_hostname = NULL, worker_process_name = NULL, updated_at = now()
    FROM locked l WHERE t.id = l.id AND t.id = ANY(%(ids)s::text[])
    RETURNING t.id, t.queue_name, t.enqueued_at
), recorded AS (
    INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, started_at, finished_at, error_code,
                                       error_message, failed_reason, worker_id, worker_hostname, worker_pid, worker_process_name)
    SELECT l.id, GREATEST(l.attempt, 1 + (SELECT max(a.attempt) FROM horsies_task_attempts a WHERE a.task_id = l.id)),
           l.outcome, TRUE, l.started_at, now(), l.error_code, l.error_message, l.reason,
           %(worker_id)s, l.worker_hostname, l.worker_pid, l.worker_process_name
    FROM moved JOIN locked l USING (id)
)
SELECT id, CASE WHEN enqueued_at <= now() OR row_number() OVER (PARTITION BY queue_name ORDER BY enqueued_at, id) = 1
                THEN horsies_ring(queue_name, id, %(worker_id)s) END FROM moved
