-- RUNNING → COMPLETED (L-10), each with its attempt row, in one statement for the whole batch.
-- A row that is no longer this claim's running attempt is left alone and not returned: someone recovered it first.
-- Updated, and so locked, in id order: the batch is sorted, and the rows, named again, come from the index in that order.
WITH moved AS (
    UPDATE horsies_tasks t
    SET status = 'COMPLETED', claimed = FALSE, claim_expires_at = NULL, completed_at = now(), result = w.result,
        error_code = NULL, failed_reason = NULL, start_failures = 0, updated_at = now()
    FROM (
        SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[], %(results)s::text[]) AS w(id, claim_seq, result)
        ORDER BY id
    ) w
    WHERE t.id = w.id AND t.id = ANY(%(ids)s::text[]) AND t.claim_seq = w.claim_seq AND t.status = 'RUNNING'
      AND t.claimed_by_worker_id = %(worker_id)s
    RETURNING t.id, t.claim_seq, t.retry_count, t.started_at, t.worker_hostname, t.worker_pid, t.worker_process_name
)
INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, started_at, finished_at,
                                   worker_id, worker_hostname, worker_pid, worker_process_name)
-- Only a task that was claimed before can have attempts already (L-36).
SELECT id, CASE WHEN claim_seq = 1 THEN retry_count + 1 ELSE GREATEST(
           retry_count + 1, 1 + (SELECT max(a.attempt) FROM horsies_task_attempts a WHERE a.task_id = moved.id)) END,
       'COMPLETED', FALSE, started_at, now(), %(worker_id)s, worker_hostname, worker_pid, worker_process_name
FROM moved
RETURNING task_id
