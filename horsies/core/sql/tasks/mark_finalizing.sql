-- The code of these running tasks has returned, but their results could not be written yet (L-30).
WITH locked AS (
    SELECT t.id FROM horsies_tasks t
    JOIN unnest(%(ids)s::text[], %(claims)s::int[]) AS h(id, claim_seq) ON h.id = t.id AND h.claim_seq = t.claim_seq
    WHERE t.status = 'RUNNING' AND t.claimed_by_worker_id = %(worker_id)s
    ORDER BY t.id FOR UPDATE OF t
)
UPDATE horsies_tasks t SET finalizing_at = now(), updated_at = now()
FROM locked l WHERE t.id = l.id
RETURNING t.id
