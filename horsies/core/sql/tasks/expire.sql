-- CLAIMED → EXPIRED (L-08): the deadline passed before user code started. No attempt row: nothing ran.
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[], %(results)s::text[]) AS w(id, claim_seq, result) ORDER BY id
), locked AS (
    SELECT t.id, w.result FROM wanted w CROSS JOIN LATERAL (
        SELECT id FROM horsies_tasks
        WHERE id = w.id AND claim_seq = w.claim_seq AND status = 'CLAIMED' AND claimed_by_worker_id = %(worker_id)s
          AND good_until <= now()
        FOR UPDATE
    ) t
)
UPDATE horsies_tasks t
SET status = 'EXPIRED', claimed = FALSE, claim_expires_at = NULL, result = l.result, error_code = 'TASK_EXPIRED', updated_at = now()
FROM locked l WHERE t.id = l.id AND t.id = ANY(%(ids)s::text[])
RETURNING t.id
