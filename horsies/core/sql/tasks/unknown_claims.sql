-- The claims that the database gives to this worker. After a claim whose reply was lost, some may be unknown to it (W-21).
SELECT id, claim_seq FROM horsies_tasks WHERE claimed AND claimed_by_worker_id = %(worker_id)s AND status = 'CLAIMED'
LIMIT 1000  -- without an order: on an empty table the planner would use the primary key, and keep that plan
