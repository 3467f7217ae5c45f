-- Brings the dates and counters of the given tasks back within the limits (D-14), because a row outside cannot be changed at
-- all. Its status stays. Only tasks that are still what was seen. A claim or a start in the far future is one of now: else the
-- task would never count as silent.
WITH locked AS (
    SELECT t.id FROM (
        SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[]) AS w(id, claim_seq) ORDER BY id
    ) w CROSS JOIN LATERAL (
        SELECT id FROM horsies_tasks
        WHERE id = w.id AND claim_seq = w.claim_seq AND status IN ('PENDING', 'CLAIMED', 'RUNNING')
          AND (status = 'PENDING' OR claimed_by_worker_id = %(worker_id)s)
        FOR UPDATE
    ) t
)
UPDATE horsies_tasks t
SET sent_at = CASE WHEN t.sent_at < m.first THEN m.first WHEN t.sent_at > m.last THEN m.last ELSE t.sent_at END,
    enqueued_at = CASE WHEN t.enqueued_at < m.first THEN m.first WHEN t.enqueued_at > m.last THEN m.last ELSE t.enqueued_at END,
    claimed_at = CASE WHEN t.claimed_at < m.first THEN m.first WHEN t.claimed_at > m.last THEN now() ELSE t.claimed_at END,
    started_at = CASE WHEN t.started_at < m.first THEN m.first WHEN t.started_at > m.last THEN now() ELSE t.started_at END,
    completed_at = CASE WHEN t.completed_at < m.first THEN m.first WHEN t.completed_at > m.last THEN m.last ELSE t.completed_at END,
    failed_at = CASE WHEN t.failed_at < m.first THEN m.first WHEN t.failed_at > m.last THEN m.last ELSE t.failed_at END,
    good_until = CASE WHEN t.good_until < m.first THEN m.first WHEN t.good_until > m.last THEN m.last ELSE t.good_until END,
    next_retry_at = CASE WHEN t.next_retry_at < m.first THEN m.first WHEN t.next_retry_at > m.last THEN m.last ELSE t.next_retry_at END,
    claim_expires_at = CASE WHEN t.claim_expires_at < m.first THEN m.first WHEN t.claim_expires_at > m.last THEN m.last ELSE t.claim_expires_at END,
    created_at = CASE WHEN t.created_at < m.first THEN m.first WHEN t.created_at > m.last THEN m.last ELSE t.created_at END,
    finalizing_at = CASE WHEN t.finalizing_at < m.first THEN m.first WHEN t.finalizing_at > m.last THEN now() ELSE t.finalizing_at END,
    retry_count = LEAST(GREATEST(t.retry_count, 0), 1000000000),
    max_retries = LEAST(GREATEST(t.max_retries, 0), 1000000000),
    claim_seq = LEAST(GREATEST(t.claim_seq, 0), 1000000000),
    start_failures = LEAST(GREATEST(t.start_failures, 0), 1000000000), updated_at = now()
FROM locked l CROSS JOIN (VALUES ('0001-01-01Z'::timestamptz, '9999-12-31Z'::timestamptz)) AS m(first, last)
WHERE t.id = l.id AND t.id = ANY(%(ids)s::text[])
RETURNING t.id
