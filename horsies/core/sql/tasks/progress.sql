-- How far these tasks have come in their present or last run (P-50). A task that waits for its next run has not begun it.
SELECT p.task_id, p.attempt, p.done, p.total, p.message, p.first_done, p.first_at, p.updated_at
FROM horsies_task_progress p JOIN horsies_tasks t ON t.id = p.task_id AND t.claim_seq = p.claim_seq
WHERE p.task_id = ANY(%(ids)s::text[]) AND t.status <> 'PENDING'
