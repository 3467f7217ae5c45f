-- Claims that the database gives to this worker, and that are not among those it knows of: the reply to the claim was lost
-- (W-21). A task that the claim made RUNNING is among them.
SELECT id, claim_seq FROM horsies_tasks t
WHERE claimed AND claimed_by_worker_id = %(worker_id)s AND status IN ('CLAIMED', 'RUNNING')
  AND (id, claim_seq) NOT IN (SELECT * FROM unnest(%(ids)s::text[], %(claims)s::int[]))
LIMIT 1000  -- without an order: on an empty table the planner would use the primary key, and keep that plan
