-- Extends the leases of these claims (W-27); a claim older than `max_age` is left to lapse.
WITH locked AS (
    SELECT t.id FROM horsies_tasks t
    JOIN unnest(%(ids)s::text[], %(claims)s::int[]) AS h(id, claim_seq) ON h.id = t.id AND h.claim_seq = t.claim_seq
    WHERE t.status = 'CLAIMED' AND t.claimed_by_worker_id = %(worker_id)s AND t.claimed_at >= now() - %(max_age)s
    ORDER BY t.id FOR UPDATE OF t
)
UPDATE horsies_tasks t SET claim_expires_at = now() + %(lease)s, updated_at = now()
FROM locked l WHERE t.id = l.id
RETURNING t.id, (SELECT set_config('synchronous_commit', 'off', TRUE))
