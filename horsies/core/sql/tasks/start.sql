-- CLAIMED → RUNNING (L-09), committed before the child is told to run. A row that is not returned is not this claim's
-- any more, or its deadline has passed (L-25).
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[], %(pids)s::int[], %(names)s::text[]) AS w(id, claim_seq, pid, name)
), locked AS (
    SELECT t.id, w.pid, w.name FROM horsies_tasks t JOIN wanted w ON w.id = t.id AND w.claim_seq = t.claim_seq
    WHERE t.status = 'CLAIMED' AND t.claimed_by_worker_id = %(worker_id)s AND (t.good_until IS NULL OR t.good_until > now())
    ORDER BY t.id FOR UPDATE OF t
)
UPDATE horsies_tasks t
SET status = 'RUNNING', started_at = now(), worker_pid = l.pid, worker_process_name = l.name,
    worker_hostname = %(hostname)s, updated_at = now()
FROM locked l WHERE t.id = l.id
RETURNING t.id
