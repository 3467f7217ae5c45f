-- RUNNING → FAILED (L-11, L-15), each with its attempt row, in one statement for the whole batch.
-- A row that is no longer this claim's running attempt is left alone and not returned: someone recovered it first.
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[], %(results)s::text[], %(codes)s::text[], %(messages)s::text[],
                         %(outcomes)s::text[], %(reasons)s::text[])
             AS w(id, claim_seq, result, error_code, error_message, outcome, reason)
    ORDER BY id
), locked AS (
    SELECT t.id, w.result, w.error_code, w.error_message, w.outcome, w.reason
    FROM wanted w CROSS JOIN LATERAL (
        SELECT id FROM horsies_tasks
        WHERE id = w.id AND claim_seq = w.claim_seq AND status = 'RUNNING' AND claimed_by_worker_id = %(worker_id)s
        FOR UPDATE
    ) t
), moved AS (
    UPDATE horsies_tasks t
    SET status = 'FAILED', claimed = FALSE, claim_expires_at = NULL, failed_at = now(), result = l.result,
        error_code = l.error_code, failed_reason = l.reason, updated_at = now(),
        start_failures = CASE l.outcome WHEN 'FAILED' THEN 0 ELSE t.start_failures END  -- its code had begun (R-102)
    FROM locked l WHERE t.id = l.id AND t.id = ANY(%(ids)s::text[])
    RETURNING t.id, t.claim_seq, t.retry_count, t.started_at, t.worker_hostname, t.worker_pid, t.worker_process_name,
              l.error_code, l.error_message, l.outcome, l.reason
)
INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, started_at, finished_at, error_code,
                                   error_message, failed_reason, worker_id, worker_hostname, worker_pid, worker_process_name)
SELECT id, CASE WHEN claim_seq = 1 THEN retry_count + 1 ELSE GREATEST(
           retry_count + 1, 1 + (SELECT max(a.attempt) FROM horsies_task_attempts a WHERE a.task_id = moved.id)) END,
       outcome, FALSE, started_at, now(), error_code, error_message, reason,
       %(worker_id)s, worker_hostname, worker_pid, worker_process_name
FROM moved
RETURNING task_id
