-- CLAIMED → CLAIMED by another worker, for claims whose lease ran out (L-06). Apart from `claim`, because an OR would
-- cost that statement its index (W-20). It adds nothing to what the cluster or a queue holds, so no cap is counted (W-24).
WITH lapsed AS (
    SELECT id, claim_expires_at, COALESCE(octet_length(args), 0) + COALESCE(octet_length(kwargs), 0) AS size
    FROM horsies_tasks p
    WHERE claimed AND status = 'CLAIMED' AND claim_expires_at < statement_timestamp() AND queue_name = ANY(%(queues)s::text[])
      AND (good_until IS NULL OR good_until > statement_timestamp())
      AND (workflow_id IS NULL
           OR (SELECT w.status FROM horsies_workflows w WHERE w.id = p.workflow_id) IN ('PENDING', 'RUNNING'))
    -- Not by id: on an empty table the planner would go by the primary key, and keep to that when the table has filled.
    ORDER BY claim_expires_at LIMIT %(budget)s FOR UPDATE SKIP LOCKED
), fitting AS (
    -- As in `claim`: one task more than the bytes that are free at most (W-25b).
    SELECT id FROM (
        SELECT *, sum(size) OVER (ORDER BY claim_expires_at ROWS UNBOUNDED PRECEDING) - size AS before FROM lapsed
    ) f WHERE before < %(free_bytes)s
)
UPDATE horsies_tasks t
SET claimed_at = statement_timestamp(), claimed_by_worker_id = %(worker_id)s,
    claim_expires_at = statement_timestamp() + %(lease)s::interval, claim_seq = t.claim_seq + 1, recovery_enrolled = %(enrolled)s,
    finalizing_at = NULL, next_retry_at = NULL, updated_at = statement_timestamp()
-- By id: a row that moved between the look and the lock, as by `mend`, has another place now.
WHERE t.id = ANY(ARRAY(SELECT id FROM fitting))
RETURNING 0::bigint, t.priority, t.enqueued_at, t.id, t.claim_seq, t.task_name, t.queue_name, t.args, t.kwargs,
          t.task_options, t.retry_count, t.max_retries, t.good_until IS NOT NULL, t.workflow_id,
          t.start_failures, CASE WHEN t.start_failures > 0 THEN t.failed_reason END,
          -- Of what was recovered or tried before: how many workers have died with it (R-58).
          CASE WHEN %(enrolled)s AND (t.failed_reason IS NOT NULL OR t.retry_count > 0) THEN (
              SELECT count(*) FROM horsies_task_attempts a WHERE a.task_id = t.id AND a.outcome = 'WORKER_FAILURE') ELSE 0 END,
          COALESCE(octet_length(t.args), 0) + COALESCE(octet_length(t.kwargs), 0), NULL,
          (SELECT set_config('synchronous_commit', 'off', TRUE))
