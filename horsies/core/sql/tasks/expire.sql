-- CLAIMED → EXPIRED (L-08): the deadline passed before user code started. No attempt row: nothing ran.
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[], %(results)s::text[]) AS w(id, claim_seq, result)
), locked AS (
    SELECT t.id, w.result FROM horsies_tasks t JOIN wanted w ON w.id = t.id AND w.claim_seq = t.claim_seq
    WHERE t.status = 'CLAIMED' AND t.claimed_by_worker_id = %(worker_id)s AND t.good_until <= now()
    ORDER BY t.id FOR UPDATE OF t
)
UPDATE horsies_tasks t
SET status = 'EXPIRED', claimed = FALSE, claim_expires_at = NULL, result = l.result, error_code = 'TASK_EXPIRED', updated_at = now()
FROM locked l WHERE t.id = l.id
RETURNING t.id
