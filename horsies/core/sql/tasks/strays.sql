-- Claims that the database gives to this worker: after a claim whose answer was lost, some may be unknown to it (W-21).
SELECT id, claim_seq FROM horsies_tasks WHERE claimed AND claimed_by_worker_id = %(worker_id)s AND status = 'CLAIMED'
ORDER BY id LIMIT 1000
