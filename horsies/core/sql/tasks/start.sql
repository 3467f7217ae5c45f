-- CLAIMED → RUNNING (L-09), committed before the child is told to run. A row that is not returned is not this claim's
-- any more, or its deadline has passed (L-25).
-- Updated, and so locked, in id order: the batch is sorted, and the rows, named again, come from the index in that order.
UPDATE horsies_tasks t
SET status = 'RUNNING', started_at = now(), worker_pid = w.pid, worker_process_name = w.name,
    worker_hostname = %(hostname)s, updated_at = now()
FROM (
    SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[], %(pids)s::int[], %(names)s::text[]) AS w(id, claim_seq, pid, name)
    ORDER BY id
) w
WHERE t.id = w.id AND t.id = ANY(%(ids)s::text[]) AND t.claim_seq = w.claim_seq AND t.status = 'CLAIMED'
  AND t.claimed_by_worker_id = %(worker_id)s AND (t.good_until IS NULL OR t.good_until > now())
RETURNING t.id
