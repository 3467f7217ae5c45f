-- CLAIMED → RUNNING (L-09), committed before the child is told to run. A row that is not returned is not this claim's
-- any more, or its deadline has passed (L-25).
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[], %(pids)s::int[], %(names)s::text[]) AS w(id, claim_seq, pid, name) ORDER BY id
), locked AS (
    SELECT t.id, w.pid, w.name FROM wanted w CROSS JOIN LATERAL (
        SELECT id FROM horsies_tasks
        WHERE id = w.id AND claim_seq = w.claim_seq AND status = 'CLAIMED' AND claimed_by_worker_id = %(worker_id)s
          AND (good_until IS NULL OR good_until > now())
        FOR UPDATE
    ) t
)
UPDATE horsies_tasks t
SET status = 'RUNNING', started_at = now(), worker_pid = l.pid, worker_process_name = l.name,
    worker_hostname = %(hostname)s, updated_at = now()
FROM locked l WHERE t.id = l.id AND t.id = ANY(%(ids)s::text[])
RETURNING t.id
