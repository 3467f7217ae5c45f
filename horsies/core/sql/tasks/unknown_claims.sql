-- Claims that the database gives to this worker: after a claim whose answer was lost, some may be unknown to it (W-21).
SELECT id, claim_seq FROM horsies_tasks WHERE claimed AND claimed_by_worker_id = %(worker_id)s AND status = 'CLAIMED'
LIMIT 1000  -- in no order: on an empty table the planner would go by the primary key, and keep to it
