-- How far these runs have come (D-22); the newest of a task wins. Only for runs that the worker still owns, or that have ended as
-- its own: a run that lost its claim cannot overwrite the progress of a later one. The rate is counted from the first of a claim.
INSERT INTO horsies_task_progress AS p (task_id, claim_seq, attempt, done, total, message, first_done)
SELECT t.id, w.claim_seq, w.attempt, w.done, w.total, w.message, w.done
FROM json_to_recordset(%(rows)s::json) AS w(task_id text, claim_seq int, attempt int, done float8, total float8, message text)
JOIN horsies_tasks t ON t.id = w.task_id AND t.claim_seq = w.claim_seq AND t.claimed_by_worker_id = %(worker_id)s
ORDER BY t.id
ON CONFLICT (task_id) DO UPDATE
SET claim_seq = EXCLUDED.claim_seq, attempt = EXCLUDED.attempt, done = EXCLUDED.done, total = EXCLUDED.total,
    message = EXCLUDED.message,
    first_done = CASE WHEN p.claim_seq = EXCLUDED.claim_seq THEN p.first_done ELSE EXCLUDED.done END,
    first_at = CASE WHEN p.claim_seq = EXCLUDED.claim_seq THEN p.first_at ELSE now() END,
    updated_at = now()
WHERE p.claim_seq <= EXCLUDED.claim_seq
