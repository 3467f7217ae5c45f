-- Of these tasks the ones there is something to say about: those that ended, and (with no status) those not there at all.
SELECT w.id, t.task_name, t.status, t.result, t.failed_reason
FROM unnest(%(ids)s::text[]) AS w(id) LEFT JOIN horsies_tasks t ON t.id = w.id
WHERE t.id IS NULL OR t.status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED')
