-- Claims that somebody has decided to recover, taken by id as everybody does, as far as they still are what was seen:
-- the same claim in the same state (R-55). Rows that somebody else has are left to him.
SELECT t.id FROM (
    SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[], %(owners)s::text[], %(statuses)s::text[])
             AS w(id, claim_seq, owner, status)
    ORDER BY id
) w CROSS JOIN LATERAL (
    SELECT id FROM horsies_tasks
    WHERE id = w.id AND claim_seq = w.claim_seq AND claimed_by_worker_id = w.owner AND status = w.status
    FOR UPDATE SKIP LOCKED
) t
