-- Tasks that wait or are in flight and hold a date or a counter outside the limits (D-14), with these values: rows from before
-- the constraint, or from a time when somebody had dropped it. Also tasks that nobody can claim, because the number of their
-- claims is at its limit. Reads all such tasks, or those of
-- some workflows, so those that wait are looked at only after a statement has failed (L-19a).
SELECT t.id, t.claim_seq, COALESCE(t.claimed_by_worker_id, ''), t.status, t.task_name, t.queue_name, t.workflow_id, o.odd
FROM (
    SELECT * FROM horsies_tasks WHERE is_waiting AND %(with_waiting)s AND %(everywhere)s
    UNION ALL
    SELECT * FROM horsies_tasks WHERE claimed AND %(everywhere)s
    UNION ALL
    SELECT * FROM horsies_tasks WHERE NOT %(everywhere)s AND (claimed OR (is_waiting AND %(with_waiting)s))
      AND id = ANY(ARRAY(SELECT task_id FROM horsies_workflow_tasks WHERE workflow_id = ANY(%(workflows)s::text[])))
) t CROSS JOIN LATERAL (
    SELECT array_agg(v.name || ' is ' || v.value) AS odd FROM (
        SELECT d.name, d.at::text AS value FROM (VALUES
            ('sent_at', t.sent_at), ('enqueued_at', t.enqueued_at), ('claimed_at', t.claimed_at), ('started_at',
            t.started_at), ('completed_at', t.completed_at), ('failed_at', t.failed_at), ('good_until', t.good_until),
            ('next_retry_at', t.next_retry_at), ('claim_expires_at', t.claim_expires_at), ('created_at', t.created_at),
            ('updated_at', t.updated_at), ('finalizing_at', t.finalizing_at)
        ) AS d(name, at) WHERE d.at < '0001-01-01Z' OR d.at >= '10000-01-01Z'
        UNION ALL
        SELECT c.name, c.count::text FROM (VALUES
            ('retry_count', t.retry_count), ('max_retries', t.max_retries), ('claim_seq', t.claim_seq), ('start_failures',
            t.start_failures)
        ) AS c(name, count) WHERE c.count NOT BETWEEN 0 AND 1000000000
        UNION ALL
        -- The next claim would be outside.
        SELECT 'claim_seq', t.claim_seq::text WHERE t.claim_seq = 1000000000
          AND (t.status = 'PENDING' OR (t.status = 'CLAIMED' AND t.claim_expires_at < statement_timestamp()))
    ) v
) o
WHERE o.odd IS NOT NULL LIMIT %(most)s
