-- Extends the leases of these claims (W-27); a claim older than `max_age` is left to lapse.
WITH locked AS (
    SELECT t.id FROM (
        SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[]) AS h(id, claim_seq) ORDER BY id
    ) h CROSS JOIN LATERAL (
        SELECT id FROM horsies_tasks
        WHERE id = h.id AND claim_seq = h.claim_seq AND status = 'CLAIMED' AND claimed_by_worker_id = %(worker_id)s AND claimed_at >= now() - %(max_age)s::interval
        FOR UPDATE SKIP LOCKED  -- heartbeats wait for nobody
    ) t
)
UPDATE horsies_tasks t SET claim_expires_at = now() + %(lease)s::interval, updated_at = now()
FROM locked l WHERE t.id = l.id AND t.id = ANY(%(ids)s::text[])
RETURNING t.id, (SELECT set_config('synchronous_commit', 'off', TRUE))
