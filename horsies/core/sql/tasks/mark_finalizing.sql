-- The code of these running tasks has returned, but their results could not be written yet (L-30).
WITH locked AS (
    SELECT t.id FROM (
        SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[]) AS h(id, claim_seq) ORDER BY id
    ) h CROSS JOIN LATERAL (
        SELECT id FROM horsies_tasks
        WHERE id = h.id AND claim_seq = h.claim_seq AND status = 'RUNNING' AND claimed_by_worker_id = %(worker_id)s
        FOR UPDATE SKIP LOCKED  -- heartbeats wait for nobody
    ) t
)
UPDATE horsies_tasks t SET finalizing_at = now(), updated_at = now()
FROM locked l WHERE t.id = l.id AND t.id = ANY(%(ids)s::text[])
RETURNING t.id
