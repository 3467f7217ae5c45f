-- PENDING, CLAIMED and RUNNING → FAILED (L-19a): a task that no other statement can move, because of what is in its row. It
-- has been mended first, which may have changed the number of its claim. No attempt row: that may be what the database refuses.
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[], %(results)s::text[], %(reasons)s::text[])
             AS w(id, claim_seq, result, reason)
    ORDER BY id
), locked AS (
    SELECT t.id, w.result, w.reason FROM wanted w CROSS JOIN LATERAL (
        SELECT id FROM horsies_tasks
        WHERE id = w.id AND claim_seq = LEAST(GREATEST(w.claim_seq, 0), 1000000000)
          AND status IN ('PENDING', 'CLAIMED', 'RUNNING') AND (status = 'PENDING' OR claimed_by_worker_id = %(worker_id)s)
        FOR UPDATE
    ) t
)
UPDATE horsies_tasks t
SET status = 'FAILED', claimed = FALSE, claim_expires_at = NULL, failed_at = now(), result = l.result,
    error_code = 'ROW_SET_ASIDE', failed_reason = l.reason, updated_at = now()
FROM locked l WHERE t.id = l.id AND t.id = ANY(%(ids)s::text[])
RETURNING t.id
